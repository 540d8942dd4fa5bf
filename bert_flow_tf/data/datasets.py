"""Sentence pairs from TensorFlow Datasets, with names such as `tfds:glue/stsb`.

`pip install 'bert-flow-tf[datasets]'` installs the library, which downloads a data set at its first use into
TFDS_DATA_DIR.
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
    """The columns and labels of a task's data set in TensorFlow Datasets.

    `label_values` has the task's label for each class id; None if the data set has scores. The names of the dev and
    test splits end with `suffix`.
    """

    name: str
    task: str
    sentence_features: tuple[str, str] = ("sentence1", "sentence2")
    label_values: tuple[float, ...] | None = None
    suffix: str = ""


# The tuple has the task's ids of the classes entailment, neutral and contradiction.
_NLI: tuple[Any, Any, Any] = ("mnli", ("premise", "hypothesis"), (1, 2, 0))
_DATASETS = {
    _PREFIX + dataset.name: dataset
    for dataset in (
        Dataset("glue/stsb", "sts-b"),
        Dataset("glue/mrpc", "mrpc-regression", label_values=(0.0, 1.0)),
        # Entailment is class 0 in TensorFlow Datasets.
        Dataset("glue/qnli", "qnli-regression", ("question", "sentence"), (1.0, 0.0)),
        Dataset("glue/qqp", "qqp", ("question1", "question2"), (0.0, 1.0)),
        Dataset("glue/mnli", *_NLI, "_matched"),
        Dataset("snli", *_NLI),
    )
}

DATASET_NAMES = tuple(_DATASETS)
SCORED_NAMES = tuple(name for name, dataset in _DATASETS.items() if tasks.get_task(dataset.task).is_regression)


def is_dataset_name(name: str) -> bool:
    return name.lower().startswith(_PREFIX)


def get_dataset(name: str) -> Dataset:
    if name.lower() not in _DATASETS:
        raise UserError(f"unknown dataset {name!r}, expected one of {', '.join(DATASET_NAMES)}")
    return _DATASETS[name.lower()]


def read_dataset(name: str, split: str) -> tasks.Examples:
    """Read a split's pairs with the task's labels.

    GLUE's pairs are in the order of its files, SNLI's in the order of TensorFlow Datasets. Pairs without a label (in
    SNLI, without a majority) are dropped. If the split has no labels at all, they are kept with label 0. `split` is
    "train", "dev" or "test".
    """
    dataset = get_dataset(name)
    split = {"dev": "validation"}.get(split, split) + (dataset.suffix if split != "train" else "")
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(f"tfds: tensorflow_datasets is not installed: {pip_install('datasets')}") from error
    with reading(name, "a data set, from the network or in TFDS_DATA_DIR"):
        rows = list(tfds.as_numpy(tfds.load(dataset.name, split=split)))
    if rows and "idx" in rows[0]:
        # Restore the order of GLUE's files, because TensorFlow Datasets sorts by a hash.
        rows.sort(key=lambda row: row["idx"])
    has_labels = any(row["label"] != -1 for row in rows)
    rows = [row for row in rows if row["label"] != -1 or not has_labels]
    if not rows:
        raise UserError(f"{name}: found no examples in split {split}, expected at least one")
    values = [float(row["label"]) if has_labels else 0.0 for row in rows]
    if has_labels and dataset.label_values:
        values = [dataset.label_values[int(value)] for value in values]
    sentences_a, sentences_b = ([row[name].decode() for row in rows] for name in dataset.sentence_features)
    dtype = np.float32 if tasks.get_task(dataset.task).is_regression else np.int32
    return tasks.Examples(sentences_a, sentences_b, np.asarray(values, dtype), has_labels)
