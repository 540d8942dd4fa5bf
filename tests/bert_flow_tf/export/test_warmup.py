"""Warm-up requests ask for what clients will."""

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from bert_flow_tf.export.served_model import write_warmup_requests

_FILE = "assets.extra/tf_serving_warmup_requests"


def test_each_signature_gets_short_and_long_rows_one_and_many(sts_version, tmp_path):
    signatures, asked = tf.saved_model.load(str(sts_version)).signatures, {}
    for record in tf.data.TFRecordDataset(str(sts_version / _FILE)):
        request = PredictionLog.FromString(record.numpy()).predict_log.request
        assert request.model_spec.name == "sts"
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        asked.setdefault(request.model_spec.signature_name, []).append(inputs)
    assert asked.keys() == signatures.keys()
    for name, requests in asked.items():
        for inputs, n in zip(requests, [1, 1, 32], strict=True):
            (output,) = signatures[name](
                **{key: tf.constant(array) for key, array in inputs.items()}
            ).values()
            assert len(output) == n and np.isfinite(output.numpy()).all()
    # The model's max_seq_length is 8.
    lengths = ([4], [8], [4, 8] * 16)
    assert [
        [len(text.split()) for text in one["sentences"]] for one in asked["serving_default"]
    ] == list(lengths)
    for inputs, sizes in zip(asked["tokens"], lengths, strict=True):
        np.testing.assert_array_equal(
            inputs["input_mask"], np.arange(max(sizes)) < np.array(sizes)[:, None]
        )
        assert not inputs["input_word_ids"].any()
    # The bytes are the same in any order of the signatures.
    (tmp_path / "assets.extra").mkdir()
    write_warmup_requests(tmp_path, "sts", dict(reversed(list(signatures.items()))), 8)
    assert (tmp_path / _FILE).read_bytes() == (sts_version / _FILE).read_bytes()
