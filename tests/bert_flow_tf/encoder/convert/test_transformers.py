"""Hugging Face and sentence-transformers folders: the ids and values that those libraries gave, see versions.json."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from tests.refusals import user_error

LENGTH = 24
FAMILIES = (
    *("bert", "bert_cased_gelu_new", "bert_masked_lm_sharded", "bert_bfloat16_relu", "bert_float16"),
    "distilbert",
)


def is_tokenized_otherwise(text, do_lower_case):
    """Whether transformers' tokenizer differs from TF1's, which is the one here.

    It knows special tokens in a text, has 100 letters where TF1 has 200 for the longest word that is cut into pieces,
    and a final sigma for each capital one.
    """
    has_long_word = any(100 < len(word) <= 200 for word in text.split())
    return "[CLS]" in text or has_long_word or (do_lower_case and "\u03a3" in text)


@pytest.fixture(scope="module")
def folders(golden_dir, tmp_path_factory):
    """Folder of the models, with their conversions in a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield golden_dir / "transformers"


@pytest.fixture(scope="module")
def texts(golden_dir):
    return [case["text"] for case in json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]]


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_and_states_are_those_of_transformers(folders, texts, name):
    expected = np.load(folders / f"{name}.npz")
    source = resolve_encoder(bert_hub=folders / name)
    tokenizer = Tokenizer.from_source(source)
    found = tokenizer.pack(tokenizer.tokenize(tf.constant(texts)), LENGTH, pad_to_max=True)["input_word_ids"]
    same = np.all(found == expected["input_ids"], axis=1)
    np.testing.assert_array_equal(same, [not is_tokenized_otherwise(text, source.do_lower_case) for text in texts])
    values = {"avg": expected["mean"][1], "paper-cls": expected["first"][1], "avg-last-last-2": expected["mean"][0]}
    if "pooled" in expected:
        values["cls"] = expected["pooled"]
    encoder = SentenceEncoder(source, "avg", trainable=False)
    tokens = tokenizer.pack(tokenizer.tokenize(tf.constant(texts)), LENGTH)
    for pooling, value in values.items():
        vectors = encoder.with_pooling(pooling).embed(tokens)
        np.testing.assert_allclose(vectors.numpy()[same], value[same], atol=1e-5, err_msg=pooling)


@pytest.mark.parametrize("name", ["bert_masked_lm_sharded", "distilbert"])
def test_a_model_without_pooler_says_so(folders, name):
    with user_error("pooling: found 'cls'", "has no pooler", "such as paper-cls"):
        BertFlow.from_hub(folders / name, pooling="cls", max_seq_length=LENGTH)


def test_a_sentence_transformer_brings_its_pooling_and_its_length(folders, texts):
    model = BertFlow.from_hub(folders / "sentence_transformer")
    assert (model.sentence_embedding_type, model.max_seq_length) == ("avg", 12)
    expected = np.load(folders / "sentence_transformer.npz")["embeddings"]
    same = [not is_tokenized_otherwise(text, do_lower_case=True) for text in texts]
    np.testing.assert_allclose(model.encode(texts, normalize_embeddings=True)[same], expected[same], atol=1e-5)
    # What is named goes before.
    model = BertFlow.from_hub(folders / "sentence_transformer", pooling="avg-last-2", max_seq_length=7)
    assert (model.sentence_embedding_type, model.max_seq_length) == ("avg-last-2", 7)
