"""Every way in gives the vectors of `encode`."""

import dataclasses
import importlib.util

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  # registers the operations of SavedModels
from msgspec.structs import replace

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import Parts
from tests.bert_flow_tf.export.test_onnx import by_onnxruntime
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.refusals import user_error

SENTENCES = [" ".join(TINY_WORDS[i : i + 1 + i % 9]) for i in range(12)]


def _normalizing(model):
    """Return the model as if its encoder had a module `Normalize`."""
    pretrained = model.source.pretrained
    record = replace(pretrained.record, normalize=True, pooling=model.sentence_embedding_type)
    pretrained = dataclasses.replace(pretrained, record=record)
    source = dataclasses.replace(model.source, pretrained=pretrained)
    encoder = TextEncoder(source, model.encoder.network, max_seq_length=model.max_seq_length)
    return BertFlow(encoder, origin=model.origin)


def _normalizing_prompted_and_cut(model):
    model = _normalizing(model)
    model.max_seq_length = 5
    model.prompts = {"task": f"{TINY_WORDS[5]} {TINY_WORDS[6]} "}
    model.default_prompt_name = "task"
    return model


def _narrow(model):
    model.fit(SENTENCES * 6, method="soft-whitening-0.1-5")
    assert model.embedding_size == 5
    return model


def _truncated(model):
    model = _normalizing(model)
    model.truncate_dim = 6
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [_normalizing_prompted_and_cut, _narrow, _truncated])
def test_every_way_in_gives_the_vectors_of_encode(kind, tiny_encoder_dir, tmp_path):
    model = kind(BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8))
    expected = model.encode(SENTENCES)
    assert expected.shape[1] == model.embedding_size
    norms = np.linalg.norm(expected, axis=1)
    assert np.allclose(norms, 1) == (kind is _normalizing_prompted_and_cut)
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in SENTENCES))
    model.encode_dataset(tmp_path / "texts.txt", tmp_path / "folder")
    given = [model.default_prompt + text for text in SENTENCES]
    model.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served" / "1"))
    found = {
        "blocks": np.concatenate([block for _, block in model.encode_blocks(SENTENCES)]),
        "one": np.stack([model.encode(text) for text in SENTENCES]),
        "graph": model.embed(tf.constant(SENTENCES)).numpy(),
        "folder": next(Parts(tmp_path / "folder").blocks(np.random.default_rng(0))),
        "SavedModel": served(tf.constant(given)).numpy(),
    }
    if importlib.util.find_spec("tf2onnx") and importlib.util.find_spec("onnxruntime"):
        model.export(tmp_path / "onnx", format="onnx")
        found["ONNX"] = by_onnxruntime(model, tmp_path / "onnx", given)
    scale = np.abs(expected).max()
    for way, vectors in found.items():
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5 * scale, err_msg=way)


def test_truncation_leaves_the_norm_of_all_channels(tiny_encoder_dir):
    model = _normalizing(BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8))
    cut = model.encode(SENTENCES)[:, :5]
    np.testing.assert_array_equal(model.encode(SENTENCES, truncate_dim=5), cut)
    again = model.encode(SENTENCES, truncate_dim=5, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), 1, atol=1e-6)


def test_folder_to_fit_keeps_the_norms(tiny_encoder_dir, tmp_path):
    model = _normalizing(BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8))
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in SENTENCES))
    model.encode_dataset(tmp_path / "texts.txt", tmp_path / "unit")
    with user_error("unit: found normalized embeddings"):
        model.parts(tmp_path / "unit")
    settings = ShardSettings(normalize_embeddings=False)
    model.encode_dataset(tmp_path / "texts.txt", tmp_path / "raw", settings)
    found = next(model.parts(tmp_path / "raw").blocks(np.random.default_rng(0)))
    expected = model.encode_pooled(SENTENCES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_averaged_channels_of_a_whitening_are_refused(tiny_encoder_dir, tmp_path):
    averaged = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8, low_dim=16)
    with user_error("low_dim: found 16"):
        averaged.fit(SENTENCES * 6, method="sn")
    assert averaged.flow is None
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    model.fit(SENTENCES * 6, method="sn")
    with user_error("low_dim: found 16"):
        model.export(tmp_path / "served", low_dim=16)
    assert not (tmp_path / "served").exists()
