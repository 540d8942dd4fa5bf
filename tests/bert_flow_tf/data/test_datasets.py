"""Pairs from TensorFlow Datasets, with its own mocking: no network, no data."""

import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.data import datasets
from tests.refusals import user_error


@pytest.fixture(scope="module")
def tfds():
    import tensorflow_datasets

    return tensorflow_datasets


@pytest.fixture
def serve(tfds):
    """A function that makes TensorFlow Datasets return these rows."""

    def context(rows, asked=None):
        def as_dataset(builder, split=None, **_):
            if asked is not None:
                asked.append(split)
            return tf.data.Dataset.from_tensor_slices({name: [row[name] for row in rows] for name in rows[0]})

        return tfds.testing.mock_data(as_dataset_fn=as_dataset)

    return context


def pairs(a, b, labels):
    return [{a: f"Ein Boot, {i}.", b: f"Zwölf Boote, {i}.", "label": label} for i, label in enumerate(labels)]


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_generated_examples_of_every_dataset_are_read(tfds, name):
    with tfds.testing.mock_data(num_examples=7):
        examples = datasets.read_dataset(name, "train")
    assert (len(examples), examples.has_labels) == (7, True)


def test_pairs_are_in_the_order_of_glues_file(serve):
    rows = pairs("sentence1", "sentence2", [4.0, 1.0, 3.0, 2.0])
    with serve([row | {"idx": int(row["label"]) - 1} for row in rows]):
        examples = datasets.read_dataset("tfds:glue/stsb", "dev")
    assert examples.labels.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert examples.sentences_a == [f"Ein Boot, {i}." for i in (1, 3, 2, 0)]


@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        # Ids are not_equivalent, equivalent; entailment, not_entailment; not_duplicate, duplicate.
        ("tfds:glue/mrpc", ("sentence1", "sentence2"), [0.0, 1.0]),
        ("tfds:glue/qnli", ("question", "sentence"), [1.0, 0.0]),
        ("tfds:glue/qqp", ("question1", "question2"), [0.0, 1.0]),
        # They count entailment, neutral, contradiction; we count contradiction, entailment, neutral.
        ("tfds:glue/mnli", ("premise", "hypothesis"), [1, 2, 0]),
        ("tfds:snli", ("premise", "hypothesis"), [1, 2, 0]),
    ],
)
def test_classes_become_the_labels_that_our_files_give(tfds, serve, name, features, expected):
    with serve(pairs(*features, range(len(expected)))):
        np.testing.assert_array_equal(datasets.read_dataset(name, "train").labels, expected)


def test_pairs_without_a_label_are_left_out_or_have_no_gold(serve):
    with serve(pairs("premise", "hypothesis", [0, -1, 2])):
        examples = datasets.read_dataset("tfds:snli", "train")
    assert (examples.sentences_a, examples.labels.tolist()) == (["Ein Boot, 0.", "Ein Boot, 2."], [1, 0])
    with serve(pairs("sentence1", "sentence2", [-1.0, -1.0])):
        examples = datasets.read_dataset("tfds:glue/stsb", "test")
    assert (examples.labels.tolist(), examples.has_labels) == ([0, 0], False)


def test_dev_and_test_are_the_matched_splits_of_mnli(serve):
    asked = []
    with serve(pairs("premise", "hypothesis", [0, 1]), asked):
        for split in ("train", "dev", "test"):
            datasets.read_dataset("tfds:glue/mnli", split)
    assert asked == ["train", "validation_matched", "test_matched"]


def test_datasets_that_cannot_be_read_are_one_line(tfds, monkeypatch):
    monkeypatch.setattr(tfds, "load", mock.Mock(side_effect=ConnectionError("no route\nto host")))
    with user_error("tfds:snli"):
        datasets.read_dataset("tfds:snli", "train")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with user_error("tfds:snli", "bert-flow-tf[datasets]"):
        datasets.read_dataset("tfds:snli", "train")
