"""Sentence pairs from TensorFlow Datasets, and files for training.

`pip install 'bert-flow-tf[datasets]'` installs the library, which downloads a data set at its first use into
TFDS_DATA_DIR. Its data sets become files in GLUE's format; STS-12 to STS-16 become a `full.txt` of two columns, as the
original expects.
"""

import pathlib
import re
from collections.abc import Mapping

from bert_flow_tf.data.pair_files import Examples, FileLayout
from bert_flow_tf.data.tasks import SNLI, SPLITS, TASKS, Task
from bert_flow_tf.errors import pip_install
from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.files.reading import reading

# A data set's columns and class ids are those of Hugging Face's exports, which `Task.parse` knows.
DATASETS = {
    "tfds:glue/stsb": TASKS["sts-b"],
    "tfds:glue/mrpc": TASKS["mrpc-regression"],
    "tfds:glue/qnli": TASKS["qnli-regression"],
    "tfds:glue/qqp": TASKS["qqp"],
    "tfds:glue/mnli": TASKS["mnli"],
    "tfds:snli": SNLI,
}
MARKER_FILE = "prepared.json"
# A folder with another file, such as sts-test.csv, is not replaced.
_FILES = ("train.tsv", "dev*.tsv", "test*.tsv", "full.txt", "msr_paraphrase_test.txt", MARKER_FILE)
PREPARED_FOLDER = FolderKind("a prepared folder", MARKER_FILE, _FILES)


def read_dataset(name: str, split: str) -> Examples:
    """Read a split of one of `DATASETS` with its task's labels.

    GLUE's pairs are in the order of its files, SNLI's in the order of TensorFlow Datasets. Pairs without a label (in
    SNLI, without a majority) are dropped. If the split has no labels at all, they are kept with label 0. `split` is
    "train", "dev" or "test".
    """
    task = DATASETS[name]
    part = {"dev": "validation"}.get(split, split) + "_matched" * (task.name == "mnli" and split != "train")
    with reading(name, f"a data set from the network or TFDS_DATA_DIR, after {pip_install('datasets')}"):
        import tensorflow_datasets as tfds

        rows = list(tfds.as_numpy(tfds.load(name.removeprefix("tfds:"), split=part)))
    # Restore the order of GLUE's files, because TensorFlow Datasets sorts by a hash.
    rows.sort(key=lambda row: row.get("idx", 0))
    has_labels = any(row["label"] != -1 for row in rows)
    rows = [row for row in rows if row["label"] != -1 or not has_labels]
    cells = [[one.decode() if isinstance(one, bytes) else str(one.item()) for one in row.values()] for row in rows]
    return task.parse([list(rows[0]), *cells], f"{name}, {part}", task.files["train" if has_labels else "test"])


def write_dataset(folder: pathlib.Path, name: str) -> dict[str, int]:
    """Write one of `DATASETS` in GLUE's format; return pair counts by split.

    MNLI gets gold labels; in GLUE's own file, the original reads the first annotator's labels.
    """
    parts = {split: read_dataset(name, split) for split in SPLITS}
    write_task(folder, DATASETS[name], parts | ({"gold": parts["test"]} if parts["test"].has_labels else {}), name)
    return {split: len(examples) for split, examples in parts.items()}


def write_task(folder: pathlib.Path, task: Task, parts: Mapping[str, Examples], source: str) -> None:
    """Write the files that a task has for these parts."""
    files = {layout.name: _rows(task, layout, parts[part]) for part, layout in task.files.items() if part in parts}
    with new_folder(folder) as new:
        for name, rows in files.items():
            lines = ("\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in row) + "\n" for row in rows)
            (new / name).write_bytes("".join(lines).encode())
        write_json(new / MARKER_FILE, {"source": source, "files": {name: len(rows) for name, rows in files.items()}})


def _rows(task: Task, layout: FileLayout, examples: Examples) -> list[list[str]]:
    """Return rows of cells, the header first; unused cells are "-"."""
    names = task.label_names
    labels = [names[int(label)] if names else f"{label:g}" for label in examples.labels]
    rows = []
    for cells in (layout.header or (), *zip(examples.sentences_a, examples.sentences_b, labels, strict=True)):
        row = ["-"] * layout.min_columns
        # zip drops the labels if the layout has no column for them.
        for column, cell in zip(layout.columns, cells, strict=False):
            row[column] = cell
        rows.append(row)
    return rows if layout.header else rows[1:]
