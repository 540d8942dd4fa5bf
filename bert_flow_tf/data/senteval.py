"""SentEval's similarity sets and classification tasks.

STS-12 to STS-16: `STS/STS12-en-test/STS.input.NAME.txt` has two sentences per line, separated by a tab;
`STS.gs.NAME.txt` has a gold score per line, or an empty line for a pair without score, which is skipped. SentEval's
STS-13 has no SMT part. All folders are in SentEval's `downstream` or in a folder of your own.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1, Tables 1 and 2.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from bert_flow_tf.data.pair_files import Examples, FileLayout, Task, read_rows
from bert_flow_tf.data.tasks import MRPC, SICK, SPLITS
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.reading import parse_number, read_lines, reading

PREFIX = "senteval:"
SUBSETS = {
    "sts12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "sts13": ("FNWN", "headlines", "OnWN"),
    "sts14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
# These tasks have a file of sentences of class 1 and one of class 0.
_POLARITY = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
_ALL = {"all": FileLayout("", (0,), 1)}
_TREC = {"train": FileLayout("train_5500.label", (1,), 0), "test": FileLayout("TREC_10.label", (1,), 0)}
_ENTAILMENT = ("sentence_A", "sentence_B", "entailment_judgment")
_SICK = {part: dataclasses.replace(SICK[i], label_column=4, header=_ENTAILMENT) for i, part in enumerate(SPLITS)}


def _classes(name: str, folder: str, files: Mapping[str, FileLayout], names: tuple[str, ...] = ("0", "1")) -> Task:
    return Task(f"{PREFIX}{name}", folder, files, is_regression=False, label_names=names, metric="accuracy")


_TASKS = (
    *(
        Task(name, f"STS/{name.upper()}-en-test", {one: FileLayout(f"STS.input.{one}.txt", (0, 1)) for one in subsets})
        for name, subsets in SUBSETS.items()
    ),
    *(_classes(folder.lower(), folder, _ALL) for folder in _POLARITY),
    _classes("sst2", "SST/binary", {part: FileLayout(f"sentiment-{part}", (0,), 1) for part in SPLITS}),
    _classes("trec", "TREC", _TREC, ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")),
    _classes("mrpc", "MRPC", dict(zip(("train", "test"), MRPC, strict=True))),
    _classes("sicke", "SICK", _SICK, ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")),
)
TASKS = {task.name: task for task in _TASKS}
# The names that SentEval itself has for them.
NAMES = {name.removeprefix(PREFIX).upper().replace("SICKE", "SICKEntailment"): name for name in TASKS}


def find_folder(senteval_dir: str | os.PathLike | None, task: Task) -> pathlib.Path:
    """Return a task's folder in SentEval's data or its `downstream`."""
    if senteval_dir is None:
        raise ArgumentError(f"senteval_dir: missing, expected the folder that holds {task.directory}, for {task.name}")
    folders = [pathlib.Path(senteval_dir, part, task.directory) for part in ("downstream", "")]
    for path in folders:
        if path.is_dir():
            return path
    raise UserError(f"{folders[1]}: no such folder, expected SentEval's data in {senteval_dir}")


def read_part(task: Task, folder: pathlib.Path, part: str) -> Examples:
    """Read a sub-set with its gold scores, or a part with classes.

    The examples of a classification task are sorted by number of words, then class, as in SentEval.
    """
    layout = task.files[part]
    path = folder / layout.name
    if task.is_regression:
        return _read_scored(task.parse(read_rows(path), path, layout), folder / f"STS.gs.{part}.txt")
    if task.directory in _POLARITY:
        files = zip(_POLARITY[task.directory], "10", strict=True)
        rows = [[line, label] for file, label in files for line in _latin_lines(folder / file)]
    elif task.directory == "TREC":
        # A line is `CLASS:subclass question`.
        rows = [[line.partition(":")[0], line.partition(" ")[2]] for line in _latin_lines(path)]
    else:
        rows = read_rows(path)
    found = task.parse([[" ".join(cell.split()) for cell in row] for row in rows], path, layout)
    texts = [column for column in (found.sentences_a, found.sentences_b) if column]
    keys = [(*(len(column[i].split()) for column in texts), found.labels[i]) for i in range(len(found))]
    return found.take(sorted(range(len(found)), key=keys.__getitem__))


def _read_scored(pairs: Examples, gold_path: pathlib.Path) -> Examples:
    """Return the pairs that have a line with a gold score."""
    # Keep empty lines at the end, because the last pairs may have no score.
    gold = read_lines(gold_path, keep_empty_end=True)
    scored = [number for number, line in enumerate(gold) if line.strip()]
    if not scored or len(gold) < len(pairs) or scored[-1] >= len(pairs):
        found = f"found {len(gold)} gold lines with {len(scored)} scores"
        raise UserError(f"{gold_path}: {found} for {len(pairs)} pairs, expected a line per pair")
    scores = [parse_number(gold[i].strip(), f"{gold_path}, line {i + 1}") for i in scored]
    return dataclasses.replace(pairs.take(scored), labels=np.array(scores), has_labels=True)


def _latin_lines(path: pathlib.Path) -> list[str]:
    with reading(path, "SentEval's data"):
        # Like SentEval's reader, split at all line ends that Python knows.
        return path.read_bytes().decode("latin-1").splitlines()
