"""SentEval's similarity sets and classification tasks.

STS-12 to STS-16: `STS/STS12-en-test/STS.input.NAME.txt` has two sentences per line, separated by a tab;
`STS.gs.NAME.txt` has a gold score per line, or an empty line for a pair without score, which is skipped. SentEval's
STS-13 has no SMT part. All folders are in SentEval's `downstream` or in a folder of your own.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1, Tables 1 and 2.
"""

import dataclasses
import os
import pathlib

import numpy as np

from bert_flow_tf.data.pair_files import Examples, FileLayout, parse_rows, read_rows
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
_ENTAILMENT = ("sentence_A", "sentence_B", "entailment_judgment")
# A folder has a file for each part.
_PARTS = {
    **{folder: {"all": FileLayout("", (0,), 1)} for folder in _POLARITY},
    "SST/binary": {part: FileLayout(f"sentiment-{part}", (0,), 1) for part in SPLITS},
    "TREC": {"train": FileLayout("train_5500.label", (1,), 0), "test": FileLayout("TREC_10.label", (1,), 0)},
    "MRPC": dict(zip(("train", "test"), MRPC, strict=True)),
    "SICK": {
        part: dataclasses.replace(file, label_column=4, header=_ENTAILMENT)
        for part, file in zip(SPLITS, SICK, strict=True)
    },
}
_CLASSES = {
    "TREC": ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
    "SICK": ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
}
# Our names of tasks have these folders; SentEval has other names.
FOLDERS = {name: f"STS/{name.upper()}-en-test" for name in SUBSETS}
FOLDERS |= {f"{PREFIX}{folder.lower()}": folder for folder in _POLARITY}
FOLDERS |= {f"{PREFIX}sst2": "SST/binary", f"{PREFIX}trec": "TREC", f"{PREFIX}mrpc": "MRPC", f"{PREFIX}sicke": "SICK"}
NAMES = {name.removeprefix(PREFIX).upper().replace("SICKE", "SICKEntailment"): name for name in FOLDERS}


def find_folder(senteval_dir: str | os.PathLike | None, name: str) -> pathlib.Path:
    """Return a task's folder in SentEval's data or its `downstream`."""
    if senteval_dir is None:
        raise ArgumentError(f"senteval_dir: missing, expected the folder that holds {FOLDERS[name]}, for {name}")
    folders = [pathlib.Path(senteval_dir, part, FOLDERS[name]) for part in ("downstream", "")]
    for path in folders:
        if path.is_dir():
            return path
    raise UserError(f"{folders[1]}: no such folder, expected SentEval's data in {senteval_dir}")


def read_parts(name: str, folder: pathlib.Path) -> dict[str, Examples]:
    """Read a task's sub-sets with gold scores, or its parts with classes.

    The examples of a classification task are sorted by number of words, then class, as in SentEval.
    """
    if name in SUBSETS:
        paths = {one: (folder / f"STS.input.{one}.txt", folder / f"STS.gs.{one}.txt") for one in SUBSETS[name]}
        return {one: read_scored_pairs(*both) for one, both in paths.items()}
    directory, parts = FOLDERS[name], {}
    for part, layout in _PARTS[directory].items():
        path = folder / layout.name
        if directory in _POLARITY:
            files = zip(_POLARITY[directory], "10", strict=True)
            rows = [[line, label] for file, label in files for line in _latin_lines(folder / file)]
        elif directory == "TREC":
            # A line is `CLASS:subclass question`.
            rows = [[line.partition(":")[0], line.partition(" ")[2]] for line in _latin_lines(path)]
        else:
            rows = read_rows(path)
        rows = [[" ".join(cell.split()) for cell in row] for row in rows]
        found = parse_rows(rows, path, layout, label_names=_CLASSES.get(directory, ("0", "1")))
        texts = [column for column in (found.sentences_a, found.sentences_b) if column]
        keys = [(*(len(column[i].split()) for column in texts), found.labels[i]) for i in range(len(found))]
        parts[part] = found.take(sorted(range(len(found)), key=keys.__getitem__))
    return parts


def read_scored_pairs(input_path: str | os.PathLike, gold_path: str | os.PathLike) -> Examples:
    pairs = parse_rows(read_rows(input_path), input_path, FileLayout("", (0, 1)))
    # Keep empty lines at the end, because the last pairs may have no score.
    gold = read_lines(gold_path, keep_empty_end=True)
    scored = [number for number, line in enumerate(gold) if line.strip()]
    if not scored or len(gold) < len(pairs) or scored[-1] >= len(pairs):
        found = f"found {len(gold)} gold lines with {len(scored)} scores"
        raise UserError(f"{gold_path}: {found} for the {len(pairs)} pairs of {input_path}, expected a line per pair")
    scores = [parse_number(gold[i].strip(), f"{gold_path}, line {i + 1}") for i in scored]
    return dataclasses.replace(pairs.take(scored), labels=np.array(scores), has_labels=True)


def _latin_lines(path: pathlib.Path) -> list[str]:
    with reading(path, "SentEval's data"):
        # Like SentEval's reader, split at all line ends that Python knows.
        return path.read_bytes().decode("latin-1").splitlines()
