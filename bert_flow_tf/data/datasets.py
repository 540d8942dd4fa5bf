"""Sentence pairs from TensorFlow Datasets, under names such as `tfds:glue/stsb`.

TensorFlow Datasets is needed only here: `pip install 'bert-flow-tf[datasets]'`. It downloads a data set at its first
use and keeps it in its own folder (variable TFDS_DATA_DIR).
"""

import dataclasses
from typing import Any

import numpy as np

from bert_flow_tf.data import tasks
from bert_flow_tf.errors import ArgumentError, UserError, pip_install

_PREFIX = "tfds:"
_INSTALL = pip_install("datasets")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Where a TensorFlow dataset keeps what a task of `bert_flow_tf.data.tasks` holds.

    Attributes:
      name, splits: as TensorFlow Datasets spells them.
      task: name of the task with the same labels.
      sentence_features: names of the two sentences' features.
      label_values: the task's label for each id of TensorFlow Datasets' classes; None where the label is the score.
    """

    name: str
    task: str
    sentence_features: tuple[str, str]
    label_values: tuple[float, ...] | None = None
    splits: tuple[str, ...] = ("train", "validation", "test")


# Classes of NLI: entailment, neutral, contradiction there; contradiction, entailment, neutral here.
_NLI_VALUES = (1, 2, 0)

_DATASETS = {
    _PREFIX + dataset.name: dataset
    for dataset in (
        Dataset("glue/stsb", "sts-b", ("sentence1", "sentence2")),
        Dataset("glue/mrpc", "mrpc-regression", ("sentence1", "sentence2"), (0.0, 1.0)),
        # Entailment comes first there.
        Dataset("glue/qnli", "qnli-regression", ("question", "sentence"), (1.0, 0.0)),
        Dataset("glue/qqp", "qqp", ("question1", "question2"), (0.0, 1.0)),
        Dataset(
            "glue/mnli",
            "mnli",
            ("premise", "hypothesis"),
            _NLI_VALUES,
            ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"),
        ),
        Dataset("snli", "mnli", ("premise", "hypothesis"), _NLI_VALUES),
    )
}

DATASET_NAMES = tuple(_DATASETS)
SCORED_NAMES = tuple(name for name, dataset in _DATASETS.items() if tasks.get_task(dataset.task).is_regression)


def is_dataset_name(name: str) -> bool:
    return name.lower().startswith(_PREFIX)


def get_dataset(name: str) -> Dataset:
    """The dataset of that name; a `UserError` for an unknown one lists the known ones."""
    if name.lower() not in _DATASETS:
        raise UserError(f"unknown dataset {name!r}, expected one of {', '.join(DATASET_NAMES)}")
    return _DATASETS[name.lower()]


def split_name(dataset: Dataset, split: str) -> str:
    """TensorFlow Datasets' name of a split, "validation" for "dev", the matched one for MNLI; else a `UserError`."""
    wanted = "validation" if split == "dev" else split
    for name in (wanted, f"{wanted}_matched"):
        if name in dataset.splits:
            return name
    raise ArgumentError(f"split: {_PREFIX}{dataset.name} has no split {split!r}, expected {', '.join(dataset.splits)}")


def read_dataset(name: str, split: str) -> tasks.Examples:
    """The pairs of one split with labels as those of `bert_flow_tf.data.tasks`, in the order of GLUE's file.

    SNLI has the order of TensorFlow Datasets. Pairs without a label, such as SNLI's on which the annotators did not
    agree, are left out; a split without any label keeps them all, with the stand-in labels of `tasks.read_split`.
    `split` is "train", "dev", "test", or TensorFlow Datasets' own name.

    Raises:
      UserError: unknown name or split, no usable TensorFlow Datasets, a download that fails, or no example.
    """
    dataset = get_dataset(name)
    split = split_name(dataset, split)
    feature_a, feature_b = dataset.sentence_features
    rows = _rows(dataset, split)
    has_labels = any(row["label"] != -1 for row in rows)
    if has_labels:
        rows = [row for row in rows if row["label"] != -1]
    if not rows:
        raise UserError(f"{name}: no examples found in split {split}, expected at least one")
    values = [float(row["label"]) if has_labels else 0.0 for row in rows]
    if has_labels and dataset.label_values is not None:
        values = [dataset.label_values[int(value)] for value in values]
    return tasks.Examples(
        sentences_a=[row[feature_a].decode() for row in rows],
        sentences_b=[row[feature_b].decode() for row in rows],
        labels=np.asarray(values, np.float32 if tasks.get_task(dataset.task).is_regression else np.int32),
        has_labels=has_labels,
    )


def _rows(dataset: Dataset, split: str) -> list[dict[str, Any]]:
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise UserError(f"tfds: tensorflow_datasets is not installed ({_INSTALL})") from None
    # One whose own imports fail logs that and is left without contents.
    if not hasattr(tfds, "load"):
        raise UserError(
            f"tfds: found a tensorflow_datasets that fails to load, expected one that fits the packages installed "
            f"({_INSTALL})"
        )
    # What an altered download raises; TensorFlow Datasets does not export it.
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    try:
        rows = list(tfds.as_numpy(tfds.load(dataset.name, split=split)))
    except ImportError as error:
        raise UserError(f"{_PREFIX}{dataset.name}: found no package {error.name}, expected one ({_INSTALL})") from error
    except (OSError, tfds.download.DownloadError, NonMatchingChecksumError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{_PREFIX}{dataset.name}: cannot be loaded ({reason}), expected network access or a copy in TFDS_DATA_DIR"
        ) from error
    # TensorFlow Datasets gives them in the order of a hash; `idx` is the order of GLUE's files.
    return sorted(rows, key=lambda row: row["idx"]) if rows and "idx" in rows[0] else rows
