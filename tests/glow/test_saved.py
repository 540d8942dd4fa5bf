"""Exports for other programs."""

import numpy as np
import tensorflow as tf

from glow.saved import write_onnx


def test_weights_are_in_the_file_but_not_in_tf2onnx(require, tmp_path, monkeypatch):
    require("onnxruntime")
    require("tf2onnx")
    import onnxruntime
    import tf2onnx

    convert, sizes = tf2onnx.convert.from_function, []

    def measured(*arguments, **options):
        program, storage = convert(*arguments, **options)
        sizes.append(program.ByteSize())
        return program, storage

    monkeypatch.setattr(tf2onnx.convert, "from_function", measured)
    rng = np.random.default_rng(0)
    kernel, unused = (rng.normal(size=[64, 64]).astype(np.float32) for _ in range(2))
    write_onnx(
        lambda x, kernel, unused: {"y": x @ kernel},
        [tf.TensorSpec([None, 64], tf.float32, "x")],
        tmp_path / "program.onnx",
        {"dense/kernel": tf.Variable(kernel), "unused": tf.Variable(unused)},
    )
    assert sizes[0] < kernel.nbytes < (tmp_path / "program.onnx").stat().st_size < 2 * kernel.nbytes
    session = onnxruntime.InferenceSession(tmp_path / "program.onnx")
    assert [one.name for one in session.get_inputs()] == ["x"]
    x = rng.normal(size=[3, 64]).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ kernel, rtol=1e-5, atol=1e-5)
