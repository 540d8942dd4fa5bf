"""Pairs from TensorFlow Datasets, with its own mocking: no network, no data."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import datasets
from bert_flow_tf.evaluation.sts_sets import read_task


@pytest.fixture(scope="module")
def tfds():
    import tensorflow_datasets

    return tensorflow_datasets


@pytest.fixture
def serve(tfds):
    """Function from rows of a dataset to a context in which TensorFlow Datasets gives them, whatever split is asked."""

    def context(rows, asked=None):
        def as_dataset(builder, split=None, **_):
            if asked is not None:
                asked.append((builder.info.full_name.rpartition("/")[0], split))
            return tf.data.Dataset.from_tensor_slices({name: [row[name] for row in rows] for name in rows[0]})

        return tfds.testing.mock_data(as_dataset_fn=as_dataset)

    return context


def pairs(a, b, labels):
    return [{a: f"Ein Boot, {i}.", b: f"Zwölf Boote, {i}.", "label": label} for i, label in enumerate(labels)]


def refusal(function, *arguments, **keywords):
    with pytest.raises(UserError) as caught:
        function(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", datasets.DATASET_NAMES)
def test_features_splits_and_their_types_are_those_of_tensorflow_datasets(tfds, name):
    dataset = datasets.get_dataset(name)
    features = tfds.builder(dataset.name).info.features
    assert all(isinstance(features[feature], tfds.features.Text) for feature in dataset.sentence_features)
    if dataset.label_values is None:
        assert features["label"].np_dtype == np.float32
    else:
        assert features["label"].num_classes == len(dataset.label_values)


@pytest.mark.parametrize("name", datasets.DATASET_NAMES)
def test_generated_examples_of_every_dataset_are_read(tfds, name):
    with tfds.testing.mock_data(num_examples=7):
        examples = datasets.read_dataset(name, "train")
    assert len(examples) == 7
    assert examples.has_labels
    assert all(isinstance(s, str) for s in examples.sentences_a + examples.sentences_b)


def test_scores_are_kept_and_text_is_decoded(serve):
    with serve(pairs("sentence1", "sentence2", [4.5, 0.0, 2.25])):
        examples = datasets.read_dataset("tfds:glue/stsb", "dev")
    assert examples.sentences_a[0] == "Ein Boot, 0."
    assert examples.sentences_b[2] == "Zwölf Boote, 2."
    assert examples.labels.dtype == np.float32
    np.testing.assert_array_equal(examples.labels, [4.5, 0.0, 2.25])


def test_pairs_are_in_the_order_of_glues_file(serve):
    """TensorFlow Datasets gives them in the order of a hash of their number."""
    rows = pairs("sentence1", "sentence2", [4.0, 1.0, 3.0, 2.0])
    with serve([row | {"idx": int(row["label"]) - 1} for row in rows]):
        examples = datasets.read_dataset("tfds:glue/stsb", "dev")
    assert examples.labels.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert examples.sentences_a == [f"Ein Boot, {i}." for i in (1, 3, 2, 0)]


@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        # Their ids: not_equivalent, equivalent; entailment, not_entailment; not_duplicate, duplicate.
        ("tfds:glue/mrpc", ("sentence1", "sentence2"), [0.0, 1.0]),
        ("tfds:glue/qnli", ("question", "sentence"), [1.0, 0.0]),
        ("tfds:glue/qqp", ("question1", "question2"), [0.0, 1.0]),
        # Theirs: entailment, neutral, contradiction; ours: contradiction, entailment, neutral.
        ("tfds:glue/mnli", ("premise", "hypothesis"), [1, 2, 0]),
        ("tfds:snli", ("premise", "hypothesis"), [1, 2, 0]),
    ],
)
def test_classes_become_the_labels_that_our_files_give(tfds, serve, name, features, expected):
    with serve(pairs(*features, range(len(expected)))):
        np.testing.assert_array_equal(datasets.read_dataset(name, "train").labels, expected)


def test_pairs_without_a_label_are_left_out(serve):
    with serve(pairs("premise", "hypothesis", [0, -1, 2])):
        examples = datasets.read_dataset("tfds:snli", "train")
    assert examples.sentences_a == ["Ein Boot, 0.", "Ein Boot, 2."]
    np.testing.assert_array_equal(examples.labels, [1, 0])


def test_split_without_labels_is_good_for_its_sentences_only(serve):
    with serve(pairs("sentence1", "sentence2", [-1.0, -1.0])):
        examples = datasets.read_dataset("tfds:glue/stsb", "test")
        line = refusal(read_task, "tfds:glue/stsb", split="test")
    assert (len(examples), examples.has_labels) == (2, False)
    np.testing.assert_array_equal(examples.labels, [0, 0])
    assert line == "--split: tfds:glue/stsb has no gold scores for its split test, expected another split"


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("tfds:glue/stsb", "dev", "validation"),
        ("tfds:glue/stsb", "validation", "validation"),
        ("tfds:glue/mnli", "dev", "validation_matched"),
        ("tfds:glue/mnli", "test_mismatched", "test_mismatched"),
        ("tfds:snli", "test", "test"),
    ],
)
def test_splits_go_by_their_names_there_and_dev_by_ours(serve, name, split, expected):
    asked = []
    features = datasets.get_dataset(name).sentence_features
    with serve(pairs(*features, [0, 1]), asked):
        datasets.read_dataset(name, split)
    assert [found for _, found in asked] == [expected]


def test_unknown_names_are_refused_with_the_known_ones():
    assert refusal(datasets.read_dataset, "tfds:glue/cola", "train").startswith(
        "unknown dataset 'tfds:glue/cola', expected one of tfds:glue/stsb, tfds:glue/mrpc"
    )
    line = refusal(datasets.read_dataset, "tfds:snli", "holdout")
    assert line == "--split: tfds:snli has no split 'holdout', expected train, validation, test"


def test_task_from_a_dataset_is_scored_on_its_validation_split(serve):
    asked = []
    with serve(pairs("question", "sentence", [0, 1, 0]), asked):
        task = read_task("tfds:glue/qnli")
    assert (task.name, task.title, task.metric) == ("tfds:glue/qnli", "QNLI", "auc")
    assert (task.split, task.source) == ("validation", "tfds:glue/qnli")
    assert asked[0][1] == "validation"
    assert task.subsets[0].gold.dtype == np.float64
    np.testing.assert_array_equal(task.subsets[0].gold, [1, 0, 1])


def test_dataset_of_classes_is_no_task_for_a_cosine():
    assert refusal(read_task, "tfds:snli").startswith("--tasks: tfds:snli has classes that no cosine can be scored")


def test_without_tensorflow_datasets_the_line_to_install_it_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    line = refusal(datasets.read_dataset, "tfds:snli", "train")
    assert line == "tfds: found no tensorflow_datasets, expected it (pip install bert-flow-tf[datasets])"


def test_tensorflow_datasets_that_failed_to_load_is_not_used(monkeypatch):
    # What it leaves of itself when a package that it imports does not fit.
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", types.ModuleType("tensorflow_datasets"))
    assert "fails to load" in refusal(datasets.read_dataset, "tfds:snli", "train")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionError("no route\nto host"), "tfds:snli: cannot be had (no route to host), expected a network"),
        (ModuleNotFoundError("No module", name="importlib_resources"), "found no package importlib_resources"),
    ],
)
def test_download_that_fails_is_one_line(tfds, monkeypatch, error, said):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(tfds, "load", fail)
    assert said in refusal(datasets.read_dataset, "tfds:snli", "train")
