"""SentEval's similarity sets.

STS-12 to STS-16: `STS/STS12-en-test/STS.input.NAME.txt` has two sentences per line, separated by a
tab; `STS.gs.NAME.txt` has a gold score per line, or an empty line for a pair without score, which
is skipped. SentEval's STS-13 has no SMT part. All folders are in SentEval's `downstream` or in a
folder of your own.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, Table 2.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from bert_flow_tf.common.atomic import FolderKind, new_folder
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.reading import parse_number, read_lines
from bert_flow_tf.tasks.pair_files import Examples, FileLayout, Task, read_rows

SUBSETS = {
    "sts12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "sts13": ("FNWN", "headlines", "OnWN"),
    "sts14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_TASKS = (
    Task(
        name,
        f"STS/{name.upper()}-en-test",
        {one: FileLayout(f"STS.input.{one}.txt", (0, 1)) for one in subsets},
    )
    for name, subsets in SUBSETS.items()
)
TASKS = {task.name: task for task in _TASKS}
# A folder with another file, such as sts-test.csv, is not replaced.
PREPARED_FOLDER = FolderKind("a prepared folder", "prepared.json", ("full.txt", "prepared.json"))


def find_folder(senteval_dir: str | os.PathLike | None, task: Task) -> pathlib.Path:
    """Return a task's folder in SentEval's data or its `downstream`."""
    if senteval_dir is None:
        raise ArgumentError(
            f"senteval_dir: missing, expected the folder that holds {task.directory}, for "
            f"{task.name}"
        )
    folders = [pathlib.Path(senteval_dir, part, task.directory) for part in ("downstream", "")]
    for path in folders:
        if path.is_dir():
            return path
    raise UserError(f"{folders[1]}: no such folder, expected SentEval's data in {senteval_dir}")


def read_subset(task: Task, folder: pathlib.Path, subset: str) -> Examples:
    """Read the pairs of a sub-set that have a gold score."""
    layout = task.files[subset]
    gold_path = folder / f"STS.gs.{subset}.txt"
    path = folder / layout.name
    pairs = task.parse(read_rows(path), path, layout)
    # Keep empty lines at the end, because the last pairs may have no score.
    gold = read_lines(gold_path, keep_empty_end=True)
    scored = [number for number, line in enumerate(gold) if line.strip()]
    if not scored or len(gold) < len(pairs) or scored[-1] >= len(pairs):
        found = f"found {len(gold)} gold lines with {len(scored)} scores"
        raise UserError(f"{gold_path}: {found} for {len(pairs)} pairs, expected a line per pair")
    scores = [parse_number(gold[i].strip(), f"{gold_path}, line {i + 1}") for i in scored]
    return dataclasses.replace(pairs.take(scored), labels=np.array(scores), has_labels=True)


def write_full_text(folder: pathlib.Path, subsets: Iterable[Examples], source: str) -> None:
    """Write pairs as the original's `full.txt`, two columns."""
    pairs = [pair for one in subsets for pair in zip(one.sentences_a, one.sentences_b, strict=True)]
    lines = ("\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in pair) + "\n" for pair in pairs)
    with new_folder(folder) as new:
        (new / "full.txt").write_bytes("".join(lines).encode())
        write_json(new / PREPARED_FOLDER.marker, {"source": source, "pairs": len(pairs)})
