"""An ONNX graph that onnxruntime runs, with the embeddings of `encode` for any pooling and any flow."""

import importlib.util
import re
import shlex

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from glow.config import GlowConfig
from glow.flow import Glow
from tests.bert_flow_tf.serving.test_guide import GUIDE
from tests.glow.bijector_checks import perturb
from tests.refusals import files_below, refused, succeeds

SMALL = {"n_levels": 2, "depth": 1, "coupling_width": 4}


def hide(monkeypatch, module):
    """Makes it look as if the module were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name, *rest))


@pytest.fixture
def tf2onnx(require):
    require("onnxruntime")
    return require("tf2onnx")


@pytest.mark.parametrize(
    ("pooling", "config", "options"),
    [
        ("avg-last-2", GlowConfig(**SMALL), {"low_dim": 4}),
        ("cls", GlowConfig(**SMALL, coupling="affine"), {}),
        ("paper-concat-last-2", GlowConfig(**SMALL, activation="gatu", permutation=False), {"normalize": True}),
        ("paper-cls", None, {}),
    ],
)
def test_onnxruntime_gives_our_embeddings(golden_dir, tf2onnx, pooling, config, options, tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "cache"))
    # Its GELU is the one by the error function.
    encoder = golden_dir / "transformers" / "sentence_transformer"
    model = BertFlow.from_hub(encoder, pooling=pooling, low_dim=options.get("low_dim", -1))
    if config is not None:
        model.flow = Glow(config, model.encoder.embedding_size, seed=0)
        perturb(model.flow.trainable_variables, seed=1)
        model._make_batchers()
    exported = model.export(tmp_path / "out", format="onnx", normalize="normalize" in options)
    assert exported.max_difference <= 1e-5 * max(1.0, exported.max_value)
    sentences = ["the cat", "", "Ünder 2nd brown, lazy special", "x"]
    tokens = {name: value.numpy() for name, value in model.tokenize(sentences).items()}
    ours = model.encode(sentences, normalize_embeddings="normalize" in options)
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx", providers=["CPUExecutionProvider"])
    theirs = session.run(["embedding"], tokens)[0]
    deviation = np.abs(theirs - ours).max() / np.abs(ours).max()
    print(f"{pooling}: largest deviation {deviation:.1e} of the largest value")
    assert theirs.shape == ours.shape and deviation < 1e-5


def test_without_what_it_needs_the_line_says_what_to_install(sts_run, tmp_path, monkeypatch):
    hide(monkeypatch, "tf2onnx")
    line = refused("export", "--model", sts_run, "--out", tmp_path / "out", "--format", "onnx")
    assert line == "--format: tf2onnx is not installed: pip install 'bert-flow-tf[onnx]', or '.[onnx]' in a clone"
    assert list(tmp_path.iterdir()) == []


def test_without_onnxruntime_it_says_that_nothing_was_checked(sts_model, tf2onnx, tmp_path, monkeypatch):
    hide(monkeypatch, "onnxruntime")
    assert sts_model.export(tmp_path / "out", format="onnx").max_difference is None


def test_the_guides_command_and_program_run(sts_run, sts_model, tf2onnx, require, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "stsb_flow").symlink_to(sts_run)
    command, program = (
        re.search(rf"<!-- snippet: {name} -->\n```\w+\n(.+?)```", GUIDE, re.DOTALL)[1]
        for name in ("onnx", "onnxruntime")
    )
    _, *arguments = shlex.split(command)
    assert "onnx written: exported/onnx (" in succeeds(*arguments)
    written = files_below(tmp_path / "exported" / "onnx")
    assert "or --overwrite" in refused(*arguments, unchanged=tmp_path / "exported")
    succeeds(*arguments, "--overwrite")
    assert files_below(tmp_path / "exported" / "onnx").keys() == written.keys()
    require("tokenizers")
    names = {}
    exec(compile(program, "snippet", "exec"), names)
    ours = sts_model.encode(names["sentences"])
    np.testing.assert_allclose(names["embeddings"], ours, rtol=0, atol=1e-5 * np.abs(ours).max())
