"""A small model with a flow and prompts, and its ONNX export."""

import shutil

import pytest

from glow.config import GlowConfig
from glow.flow import Glow


@pytest.fixture(scope="session")
def prompted(golden_dir):
    """`BertFlow` with a flow and three prompts, one of them the default."""
    from bert_flow_tf.api import BertFlow
    from tests.glow.bijector_checks import perturb

    model = BertFlow.from_hub(
        golden_dir / "transformers" / "sentence_transformer", pooling="avg", max_seq_length=12
    )
    model.flow = Glow(
        GlowConfig(n_levels=2, depth=1, coupling_width=4), model.embedding_size, seed=0
    )
    perturb(model.flow.trainable_variables, seed=1)
    model.prompts = {"query": "the lazy ", "passage": "brown ", "title": "fox "}
    model.default_prompt_name = "title"
    return model


@pytest.fixture(scope="session")
def onnx_dir(prompted, require, tmp_path_factory):
    """The ONNX export of `prompted`."""
    require("tf2onnx")
    require("onnxruntime")
    folder = tmp_path_factory.mktemp("runtime") / "onnx"
    prompted.export(folder, format="onnx")
    return folder


@pytest.fixture
def copied(onnx_dir, tmp_path):
    """A copy of `onnx_dir` that a test may change."""
    return shutil.copytree(onnx_dir, tmp_path / "copied")
