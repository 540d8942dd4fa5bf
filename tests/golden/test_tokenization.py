"""Ids of the original's tokenizer, here, in exports and in folders."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.tasks.tasks import TASKS, read_split
from tests.small_bert import write_small_bert


@pytest.fixture(scope="module")
def source(demo_dir):
    """The demo encoder, which has uncased BERT's vocabulary."""
    return resolve_encoder(bert_hub=demo_dir)


@pytest.fixture(scope="module")
def reference(golden_dir):
    """Texts, the length they are padded to, and the original's ids."""
    reference = json.loads((golden_dir / "tokenization_uncased.json").read_text())
    cases = reference["cases"]
    assert len(cases) == 61
    return (
        [c["text"] for c in cases],
        reference["max_seq_length"],
        np.array([c["input_ids"] for c in cases]),
    )


def differing(texts, found, expected):
    return [
        text for text, a, b in zip(texts, found, expected, strict=True) if not np.array_equal(a, b)
    ]


def test_all_awkward_strings(source, reference, deviation):
    texts, length, expected = reference
    tokenizer = source.tokenizer()
    found = tokenizer.pack(tokenizer.tokenize(tf.constant(texts)), length, pad_to_max=True)
    wrong = differing(texts, found["input_word_ids"].numpy(), expected)
    print(*wrong, sep="\n")
    deviation("tokenizer, of 61 awkward strings", len(wrong), 0)
    np.testing.assert_array_equal(found["input_mask"], expected != 0)
    np.testing.assert_array_equal(found["input_type_ids"], np.zeros_like(expected))


def test_all_awkward_strings_in_the_folders_tokenizer(demo_dir, reference):
    # This library is transformers' tokenizer; its encode method has this option by
    # tokenizer_config.json.
    texts, length, expected = reference
    theirs = tokenizers.Tokenizer.from_file(str(demo_dir / "tokenizer.json"))
    theirs.encode_special_tokens = json.loads((demo_dir / "tokenizer_config.json").read_text())[
        "split_special_tokens"
    ]
    theirs.enable_truncation(length)
    theirs.enable_padding(length=length)
    assert differing(texts, [one.ids for one in theirs.encode_batch(texts)], expected) == []


def test_all_awkward_strings_in_the_exported_graph(source, reference, golden_dir, tmp_path):
    texts, length, expected = reference
    # This BERT is small and has the same vocabulary.
    bert, folder = tmp_path / "bert", tmp_path / "encoder"
    write_small_bert(golden_dir / "bert_tiny", bert, layers=1, pieces=source.pretrained.vocab)
    write_encoder_folder(folder, read_tf1(bert))
    model = BertFlow.from_hub(folder, max_seq_length=length)
    exported = model.export(tmp_path / "exported").path
    served = tf.saved_model.load(str(exported)).signatures["serving_default"]
    tokens = {
        "input_word_ids": tf.constant(expected, tf.int32),
        "input_mask": tf.constant(expected != 0, tf.int32),
        "input_type_ids": tf.zeros(expected.shape, tf.int32),
    }
    by_ids = model.encoder.network(tokens, training=False).numpy()
    by_text = served(sentences=tf.constant(texts))["embedding"].numpy()
    # Texts of other ids are further apart than rounding takes them.
    rows, first = np.unique(expected, axis=0, return_index=True)
    distances = np.linalg.norm(by_ids[first, None] - by_ids[None, first], axis=-1)
    assert distances[~np.eye(len(rows), dtype=bool)].min() > 1e-2
    assert np.abs(by_text - by_ids).max() <= 1e-5


@pytest.mark.parametrize(("split", "count"), [("train", 11_498), ("dev", 3_000), ("test", 2_758)])
def test_every_sentence_of_the_sts_benchmark(source, reference_data, deviation, split, count):
    with np.load(reference_data / "golden" / "tokenization_stsb.npz") as golden:
        ids, lengths = golden[f"{split}_ids"], golden[f"{split}_lengths"]
    examples = read_split(TASKS["sts-b"], str(reference_data / "data" / "glue" / "STS-B"), split)
    sentences = [
        s for pair in zip(examples.sentences_a, examples.sentences_b, strict=True) for s in pair
    ]
    assert len(sentences) == len(lengths) == count
    found = source.tokenizer()(tf.constant(sentences), 64)
    rows = tf.RaggedTensor.from_tensor(
        found["input_word_ids"], lengths=tf.reduce_sum(found["input_mask"], axis=1)
    )
    expected = np.split(ids, np.cumsum(lengths)[:-1])
    wrong = differing(sentences, rows.to_list(), [row.tolist() for row in expected])
    print(*wrong, sep="\n")
    deviation("tokenizer, of 17,256 sentences of STS-B", len(wrong), 0)
