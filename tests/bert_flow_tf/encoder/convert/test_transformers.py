"""Folders of both libraries give the ids and values in versions.json."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder

LENGTH = 24
WITHOUT_POOLER = ("bert_masked_lm_sharded", "distilbert")
FAMILIES = ("bert", "bert_cased_gelu_new", "bert_float16", "bert_bfloat16_relu", *WITHOUT_POOLER)


def is_tokenized_otherwise(text, do_lower_case):
    """True if transformers' tokenizer differs from TF1's, which is the one here.

    It knows special tokens in a text, has 100 letters where TF1 has 200 for the longest word that
    is cut into pieces, and a final sigma for each capital one.
    """
    has_long_word = any(100 < len(word) <= 200 for word in text.split())
    return "[CLS]" in text or has_long_word or (do_lower_case and "\u03a3" in text)


@pytest.fixture(scope="module")
def folders(golden_dir):
    return golden_dir / "transformers"


@pytest.fixture(scope="module")
def texts(golden_dir):
    return [
        case["text"]
        for case in json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_and_states_are_those_of_transformers(folders, texts, name):
    expected, source = np.load(folders / f"{name}.npz"), resolve_encoder(bert_hub=folders / name)
    tokenizer, encoder = source.tokenizer(), SentenceEncoder(source, "avg", trainable=False)
    assert source.pretrained.weights["bert/pooler/dense/kernel"].any() == (
        name not in WITHOUT_POOLER
    )
    pieces = tokenizer.tokenize(tf.constant(texts))
    found = tokenizer.pack(pieces, LENGTH, pad_to_max=True)["input_word_ids"]
    same = np.all(found == expected["input_ids"], axis=1)
    np.testing.assert_array_equal(
        same, [not is_tokenized_otherwise(text, source.record.do_lower_case) for text in texts]
    )
    values = {
        "avg": expected["mean"][1],
        "paper-cls": expected["first"][1],
        "avg-last-last-2": expected["mean"][0],
    }
    if "pooled" in expected:
        values["cls"] = expected["pooled"]
    tokens = tokenizer.pack(pieces, LENGTH)
    for kind, value in values.items():
        vectors = encoder.with_pooling(kind).embed(tokens).numpy()
        np.testing.assert_allclose(vectors[same], value[same], atol=1e-5, err_msg=kind)


def test_a_sentence_transformer_brings_pooling_and_length(folders, texts):
    model = BertFlow.from_hub(folders / "sentence_transformer")
    assert (model.sentence_embedding_type, model.max_seq_length) == ("avg", 12)
    expected = np.load(folders / "sentence_transformer.npz")["embeddings"]
    same = [not is_tokenized_otherwise(text, do_lower_case=True) for text in texts]
    np.testing.assert_allclose(
        model.encode(texts, normalize_embeddings=True)[same], expected[same], atol=1e-5
    )
    # Arguments override the folder's settings.
    model = BertFlow.from_hub(
        folders / "sentence_transformer", pooling="avg-last-2", max_seq_length=7
    )
    assert (model.sentence_embedding_type, model.max_seq_length) == ("avg-last-2", 7)
