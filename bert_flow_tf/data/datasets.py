"""Sentence pairs from TensorFlow Datasets, under names such as `tfds:glue/stsb`.

TensorFlow Datasets is needed only here: `pip install 'bert-flow-tf[datasets]'`. It downloads a data set at its first
use and keeps it in its own folder (variable TFDS_DATA_DIR).
"""

import dataclasses
from typing import Any

import numpy as np

from bert_flow_tf.data import tasks
from bert_flow_tf.errors import UserError, pip_install
from bert_flow_tf.files.reading import reading

_PREFIX = "tfds:"


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Places where a TensorFlow dataset keeps what a task of `bert_flow_tf.data.tasks` holds.

    `task` has the same labels; `label_values` is its label for each id of TensorFlow Datasets' classes, None where the
    label is the score. `matched` ends the names of its dev and test splits. Names are as TensorFlow Datasets spells
    them.
    """

    name: str
    task: str
    sentence_features: tuple[str, str] = ("sentence1", "sentence2")
    label_values: tuple[float, ...] | None = None
    matched: str = ""


# Classes of NLI: entailment, neutral, contradiction there; contradiction, entailment, neutral here.
_NLI: tuple[Any, Any, Any] = ("mnli", ("premise", "hypothesis"), (1, 2, 0))
_DATASETS = {
    _PREFIX + dataset.name: dataset
    for dataset in (
        Dataset("glue/stsb", "sts-b"),
        Dataset("glue/mrpc", "mrpc-regression", label_values=(0.0, 1.0)),
        # Entailment comes first there.
        Dataset("glue/qnli", "qnli-regression", ("question", "sentence"), (1.0, 0.0)),
        Dataset("glue/qqp", "qqp", ("question1", "question2"), (0.0, 1.0)),
        Dataset("glue/mnli", *_NLI, "_matched"),
        Dataset("snli", *_NLI),
    )
}

DATASET_NAMES = tuple(_DATASETS)
SCORED_NAMES = tuple(name for name, dataset in _DATASETS.items() if tasks.get_task(dataset.task).is_regression)


def is_dataset_name(name: str) -> bool:
    """True for a name of TensorFlow Datasets, known or not."""
    return name.lower().startswith(_PREFIX)


def get_dataset(name: str) -> Dataset:
    """Return the dataset of that name; an unknown one is a `UserError`."""
    if name.lower() not in _DATASETS:
        raise UserError(f"unknown dataset {name!r}, expected one of {', '.join(DATASET_NAMES)}")
    return _DATASETS[name.lower()]


def read_dataset(name: str, split: str) -> tasks.Examples:
    """Read the pairs of one split with labels as those of `bert_flow_tf.data.tasks`, in the order of GLUE's file.

    SNLI has the order of TensorFlow Datasets. Pairs without a label, such as SNLI's on which the annotators did not
    agree, are left out; a split without any label keeps them all, with the stand-in labels of `tasks.read_split`.
    `split` is "train", "dev" or "test".

    Raises:
      UserError: unknown name, no usable TensorFlow Datasets, a download that fails, or no example.
    """
    dataset = get_dataset(name)
    split = {"dev": "validation"}.get(split, split) + (dataset.matched if split != "train" else "")
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(f"tfds: tensorflow_datasets is not installed: {pip_install('datasets')}") from error
    with reading(name, "a data set, from the network or in TFDS_DATA_DIR"):
        rows = list(tfds.as_numpy(tfds.load(dataset.name, split=split)))
    if rows and "idx" in rows[0]:
        # The order of GLUE's files; TensorFlow Datasets' is that of a hash.
        rows.sort(key=lambda row: row["idx"])
    has_labels = any(row["label"] != -1 for row in rows)
    rows = [row for row in rows if row["label"] != -1 or not has_labels]
    if not rows:
        raise UserError(f"{name}: no examples found in split {split}, expected at least one")
    values = [float(row["label"]) if has_labels else 0.0 for row in rows]
    if has_labels and dataset.label_values:
        values = [dataset.label_values[int(value)] for value in values]
    sentences_a, sentences_b = ([row[name].decode() for row in rows] for name in dataset.sentence_features)
    dtype = np.float32 if tasks.get_task(dataset.task).is_regression else np.int32
    return tasks.Examples(sentences_a, sentences_b, np.asarray(values, dtype), has_labels)
