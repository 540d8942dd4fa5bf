"""onnxruntime gives the embeddings of `encode`."""

import importlib.util
import re
import shlex

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.export.export import CHECKED_SENTENCES, checked_texts
from bert_flow_tf.export.formats import ONNX, ExportSettings, export_path
from bert_flow_tf.runtime.model import open_export
from glow import saved
from glow.config import GlowConfig
from tests.bert_flow_tf.export.test_guide import GUIDE
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.refusals import refused, succeeds, user_error

SMALL = {"n_levels": 2, "depth": 1, "coupling_width": 4}


def hide(monkeypatch, module):
    """Makes it look as if the module were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == module else find(name, *rest),
    )


def by_onnxruntime(model, folder, sentences):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    tokens = model.tokenize(sentences)
    names = {
        "input_ids": "input_word_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "input_type_ids",
    }
    inputs = {name: tokens[ours].numpy().astype(np.int64) for name, ours in names.items()}
    return session.run(["sentence_embedding"], inputs)[0]


@pytest.fixture
def tf2onnx(require):
    require("onnxruntime")
    return require("tf2onnx")


@pytest.mark.parametrize(
    ("pooling", "config", "low_dim", "normalize"),
    [
        ("avg-last-2", GlowConfig(**SMALL), 4, False),
        ("cls", GlowConfig(**SMALL, coupling="affine"), -1, False),
        (
            "paper-concat-last-2",
            GlowConfig(**SMALL, activation="gatu", permutation=False),
            -1,
            True,
        ),
        ("paper-cls", None, -1, False),
    ],
)
def test_onnxruntime_gives_our_embeddings(
    variant, tf2onnx, pooling, config, low_dim, normalize, tmp_path
):
    model = variant(pooling, config, low_dim)
    own = ["the cat", "cats", "cats"]
    exported = model.export(tmp_path / "out", format="onnx", normalize=normalize, texts=own)
    assert exported.texts == len(CHECKED_SENTENCES) + 2
    assert exported.max_difference <= 1e-5 * max(1.0, exported.max_value)
    sentences = ["the cat", "", "Ünder 2nd brown, lazy special", "x"]
    ours = model.encode(sentences, normalize_embeddings=normalize)
    theirs = by_onnxruntime(model, tmp_path / "out", sentences)
    assert theirs.shape == ours.shape and np.abs(theirs - ours).max() < 1e-5 * np.abs(ours).max()


def test_large_weights_have_a_file_of_their_own(variant, tf2onnx, tmp_path, monkeypatch):
    model = variant("avg-last-2", None)
    monkeypatch.setattr(saved, "LARGE_WEIGHTS", 0)
    folder = tmp_path / "out"
    model.export(folder, format="onnx")
    ours = model.encode(["the cat", "x"])
    np.testing.assert_allclose(open_export(folder).encode(["the cat", "x"]), ours, atol=1e-5)
    model.export(folder, format="onnx", dtype="int8", overwrite=True)
    assert not (folder / "model.onnx_data").exists()
    model.export(folder, format="onnx", overwrite=True)
    (folder / "model.onnx_data").unlink()
    with user_error("model.onnx: "):
        open_export(folder)


def test_int8_rounds_matrices_and_its_cosine_is_told(variant, tf2onnx, tmp_path):
    import onnx

    model = variant("avg-last-2", None)
    exported = model.export(tmp_path / "out", format="onnx", dtype="int8")
    assert exported.texts == len(CHECKED_SENTENCES) + 200
    assert 0.95 <= exported.mean_cosine < 0.99999
    assert exported.min_cosine < exported.mean_cosine
    graph = onnx.load(str(tmp_path / "out" / "model.onnx")).graph
    layers = [one for one in graph.initializer if len(one.dims) == 2 and "layer" in one.name]
    assert layers and {one.data_type for one in layers} == {onnx.TensorProto.INT8}
    # The probes are its own, so a server of this folder passes.
    assert open_export(tmp_path / "out").dtype == "int8"
    for dtype, kind, expected in (
        ("int8", "savedmodel", "onnx"),
        ("bfloat16", "onnx", "savedmodel"),
    ):
        with user_error(f"dtype: found {dtype} with the format {kind}, expected {expected}"):
            model.export(tmp_path / "other", format=kind, dtype=dtype)


def test_texts_of_all_lengths_are_checked():
    sample = checked_texts("int8", 128, [])[len(CHECKED_SENTENCES) :]
    counts = [len(text.split()) for text in sample]
    assert (len(counts), counts[0], counts[-1]) == (200, 1, 128)
    # Half of them are no longer than the geometric mean.
    assert counts == sorted(counts) and counts[100] in range(10, 14)
    own = checked_texts("float32", 128, [f"{'x' * (i % 500)}" for i in range(3000)])
    lengths = [len(text) for text in own[len(CHECKED_SENTENCES) :]]
    assert (len(lengths), lengths[0], lengths[-1]) == (200, 0, 499)
    assert max(np.diff(lengths)) <= 3
    assert checked_texts("float32", 128, []) == [*CHECKED_SENTENCES]


def test_an_affine_map_gives_our_cosines_in_every_program(tiny_encoder_dir, tf2onnx, tmp_path):
    rng = np.random.default_rng(0)
    fitted = [" ".join(rng.choice(TINY_WORDS, rng.integers(1, 7))) for _ in range(2000)]
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).fit(
        fitted, method="sn", dev_fraction=0
    )
    model.export(tmp_path / "onnx", format="onnx")
    served = tf.saved_model.load(str(model.export(tmp_path / "savedmodel").path))
    sentences = ["w1 w2 w3", "", "w4", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "w4 w1"]
    ours = model.encode(sentences)
    for theirs in (
        by_onnxruntime(model, tmp_path / "onnx", sentences),
        served(tf.constant(sentences)).numpy(),
    ):
        cosines = model.similarity(theirs, theirs)
        np.testing.assert_allclose(cosines, model.similarity(ours, ours), rtol=0, atol=1e-6)


def test_a_missing_library_is_named_or_the_check_left_out(
    sts_run, variant, tf2onnx, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        hide(patch, "tf2onnx")
        line = refused(
            "export",
            "--model",
            sts_run,
            "--out",
            tmp_path / "out",
            "--format",
            "onnx",
            unchanged=tmp_path,
        )
        assert line.startswith("--format: the extra onnx") and "'.[onnx]'" in line
    hide(monkeypatch, "onnxruntime")
    assert variant("paper-cls", None).export(tmp_path / "out", format="onnx").max_difference is None


def test_the_guides_command_and_program_run(
    sts_run, sts_model, tf2onnx, require, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "stsb_flow").symlink_to(sts_run)
    command, program, of_package = (
        re.search(rf"<!-- snippet: {name} -->\n```\w+\n(.+?)```", GUIDE, re.DOTALL)[1]
        for name in ("onnx", "onnxruntime", "open_export")
    )
    _, *arguments = shlex.split(command)
    assert "onnx written: exported/onnx (" in succeeds(*arguments)
    # Overwriting knows each of its files.
    assert (
        export_path("exported/onnx", ExportSettings(format=ONNX), overwrite=True)
        == tmp_path / "exported" / "onnx"
    )
    require("tokenizers")
    names = {}
    exec(compile(program, "snippet", "exec"), names)
    ours = sts_model.encode(names["sentences"])
    np.testing.assert_allclose(names["embeddings"], ours, rtol=0, atol=1e-5 * np.abs(ours).max())
    exec(compile(of_package, "snippet", "exec"), names)
    assert names["cosines"].shape == (1, 2)
