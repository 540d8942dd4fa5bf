"""SentEval's classification tasks and their files.

`MR/rt-polarity.pos`, `CR/custrev.pos`, `SUBJ/subj.objective`, `MPQA/mpqa.pos`, `SST/binary/sentiment-train`,
`TREC/train_5500.label`, `MRPC/msr_paraphrase_train.txt` and `SICK/SICK_train.txt` are in SentEval's `downstream` or in
a folder of your own.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1, Tables 1 and 2.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS, senteval_folder
from bert_flow_tf.errors import ArgumentError, UserError, suggest
from bert_flow_tf.files.reading import reading

PREFIX = "senteval:"


class Example(NamedTuple):
    """One or two sentences and their class, from 0."""

    sentences: tuple[str, ...]
    label: int


@dataclasses.dataclass(frozen=True, eq=False)
class TransferTask:
    """A classification task.

    Attributes:
      name: `senteval:mr` and so on.
      title: SentEval's name.
      source: the folder of its files.
      parts: lists of `Example` by part, sorted by number of words, then class, as in SentEval. With cross-validation,
        the only part is `all`; otherwise the parts are `train`, `test` and perhaps `dev`.
      reports_f1: True if SentEval also reports F1 of class 1 on `test`.
    """

    name: str
    title: str
    source: str
    parts: Mapping[str, list[Example]]
    reports_f1: bool = False

    @property
    def sentences(self) -> list[str]:
        return [sentence for part in self.parts.values() for example in part for sentence in example.sentences]


@dataclasses.dataclass(frozen=True)
class _Layout:
    """A task's files: tab-separated columns, or one class per file.

    Without `classes`, the first file holds class 1, the second class 0. TREC's lines are `CLASS:subclass question`.
    """

    title: str
    folder: str
    parts: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...] = ()
    sentence_columns: tuple[int, ...] = (0,)
    class_column: int = 1
    has_header: bool = False
    encoding: str = "utf-8"


def _polarity(title: str, *files: str) -> _Layout:
    return _Layout(title, title, {"all": files}, encoding="latin-1")


_SST = {name: (f"sentiment-{name}",) for name in ("train", "dev", "test")}
_TREC = {"train": ("train_5500.label",), "test": ("TREC_10.label",)}
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_MRPC = {name: (f"msr_paraphrase_{name}.txt",) for name in ("train", "test")}
_SICK = {"train": ("SICK_train.txt",), "dev": ("SICK_trial.txt",), "test": ("SICK_test_annotated.txt",)}
_LAYOUTS = {
    "mr": _polarity("MR", "rt-polarity.pos", "rt-polarity.neg"),
    "cr": _polarity("CR", "custrev.pos", "custrev.neg"),
    "subj": _polarity("SUBJ", "subj.objective", "subj.subjective"),
    "mpqa": _polarity("MPQA", "mpqa.pos", "mpqa.neg"),
    "sst2": _Layout("SST2", "SST/binary", _SST, ("0", "1")),
    "trec": _Layout("TREC", "TREC", _TREC, _TREC_CLASSES, (1,), 0, encoding="latin-1"),
    "mrpc": _Layout("MRPC", "MRPC", _MRPC, ("0", "1"), (3, 4), 0, has_header=True),
    "sicke": _Layout("SICK-E", "SICK", _SICK, ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), (1, 2), 4, has_header=True),
}
NAMES = tuple(f"{PREFIX}{name}" for name in _LAYOUTS)
SENTEVAL_NAMES = {
    **{name.upper(): name for name in SENTEVAL_SUBSETS},
    **{name.upper(): f"{PREFIX}{name}" for name in _LAYOUTS if name != "sicke"},
    "SICKEntailment": f"{PREFIX}sicke",
}


def _read_file(path: pathlib.Path, layout: _Layout, position: int) -> list[Example]:
    with reading(path, "SentEval's data"):
        # Like SentEval's reader, split at all line ends that Python knows.
        lines = path.read_bytes().decode(layout.encoding).splitlines()
    examples = []
    for number, line in list(enumerate(lines, start=1))[layout.has_header :]:
        columns, label = [line], 1 - position
        if layout.classes:
            columns = line.strip().split("\t")
            if layout.title == "TREC":
                name, _, question = line.strip().partition(":")
                columns = [name, question.partition(" ")[2]]
            if len(columns) <= max(*layout.sentence_columns, layout.class_column):
                raise UserError(f"{path}, line {number}: found {line[:40]!r}, expected the columns of {layout.title}")
            if columns[layout.class_column] not in layout.classes:
                expected = f"expected one of {', '.join(layout.classes)}"
                raise UserError(f"{path}, line {number}: found class {columns[layout.class_column]!r}, {expected}")
            label = layout.classes.index(columns[layout.class_column])
        examples.append(Example(tuple(" ".join(columns[i].split()) for i in layout.sentence_columns), label))
    return examples


def read_transfer_task(
    name: str, senteval_dir: str | os.PathLike | None = None, split: str | None = None
) -> TransferTask:
    """Read one of `NAMES` from SentEval's data, `senteval_dir` or its `downstream`."""
    if name not in NAMES:
        raise ArgumentError(f"tasks: unknown task {name!r}, expected one of {', '.join(NAMES)}{suggest(name, NAMES)}")
    if split is not None:
        raise ArgumentError(f"split: found {split} for {name}, expected none, because the protocol has its own splits")
    layout = _LAYOUTS[name.removeprefix(PREFIX)]
    folder, parts = senteval_folder(senteval_dir, layout.folder, name), {}
    for part, files in layout.parts.items():
        examples = [one for i, file in enumerate(files) for one in _read_file(folder / file, layout, i)]
        # Training the classifier or choosing its penalty needs two classes.
        if len({example.label for example in examples}) < (1 if part == "test" else 2):
            raise UserError(f"{folder / files[0]}: found too few classes, expected two or more")
        parts[part] = sorted(examples, key=lambda one: (*(len(text.split()) for text in one.sentences), one.label))
    return TransferTask(name, layout.title, str(folder), parts, reports_f1=layout.title == "MRPC")
