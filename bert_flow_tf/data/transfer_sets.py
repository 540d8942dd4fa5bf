"""SentEval's classification tasks: sentences, or pairs, with classes, in its folders and its order.

`MR/rt-polarity.pos`, `CR/custrev.pos`, `SUBJ/subj.objective`, `MPQA/mpqa.pos`, `SST/binary/sentiment-train`,
`TREC/train_5500.label`, `MRPC/msr_paraphrase_train.txt` and `SICK/SICK_train.txt`, in SentEval's `downstream` or a
folder of one's own.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1, Tables 1 and 2.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS
from bert_flow_tf.errors import ArgumentError, UserError, nearest
from bert_flow_tf.files.reading import read_file

PREFIX = "senteval:"
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_SICK_CLASSES = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


class Example(NamedTuple):
    """A sentence, or two, and the number of its class."""

    sentences: tuple[str, ...]
    label: int


@dataclasses.dataclass(frozen=True, eq=False)
class TransferTask:
    """A classification task.

    Attributes:
      name: `senteval:mr` and so on.
      title: as SentEval calls it.
      source: the folder that it was read from.
      reports_f1: whether F1 of class 1 on `test` stands beside the accuracy, as SentEval has it.
      parts: lists of `Example` by their names: `all` of a task that is cross-validated whole, `train` and `test`, or
        `train`, `dev` and `test`. They are sorted by numbers of words and classes, as SentEval sorts them.
    """

    name: str
    title: str
    source: str
    parts: Mapping[str, list[Example]]
    reports_f1: bool = False

    @property
    def sentences(self) -> list[str]:
        """Every sentence."""
        return [sentence for part in self.parts.values() for example in part for sentence in example.sentences]


class _Layout(NamedTuple):
    title: str
    folder: str
    parts: Mapping[str, tuple[str, ...]]
    read: Callable[[pathlib.Path, int], Iterable[Example]]
    reports_f1: bool = False


def _words(text: str) -> str:
    return " ".join(text.split())


def _lines(path: pathlib.Path, encoding: str) -> list[str]:
    try:
        # As SentEval reads them: whatever Python takes for the end of a line is one.
        return read_file(path, "SentEval's data").decode(encoding).splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte 0x{error.object[error.start]:02x} found, expected {encoding}") from None


def _columns(path: pathlib.Path, number: int, line: str, count: int) -> list[str]:
    columns = line.strip().split("\t")
    if len(columns) < count:
        raise UserError(
            f"{path}, line {number}: number of columns: found {len(columns)}, expected {count}, a tab between each"
        )
    return columns


def _class(path: pathlib.Path, number: int, found: str, known: tuple[str, ...]) -> int:
    if found not in known:
        raise UserError(f"{path}, line {number}: found class {found!r}, expected one of {', '.join(known)}")
    return known.index(found)


def _read_polarity(path: pathlib.Path, position: int) -> Iterable[Example]:
    # The first file's sentences are of class 1.
    return (Example((_words(line),), 1 - position) for line in _lines(path, "latin-1"))


def _read_sst(path: pathlib.Path, position: int) -> Iterable[Example]:
    for number, line in enumerate(_lines(path, "utf-8"), start=1):
        sentence, label = _columns(path, number, line, 2)[:2]
        yield Example((_words(sentence),), _class(path, number, label, ("0", "1")))


def _read_trec(path: pathlib.Path, position: int) -> Iterable[Example]:
    for number, line in enumerate(_lines(path, "latin-1"), start=1):
        label, colon, rest = line.strip().partition(":")
        _, space, question = rest.partition(" ")
        if not colon or not space:
            raise UserError(f"{path}, line {number}: found {line[:40]!r}, expected CLASS:class question")
        yield Example((_words(question),), _class(path, number, label, _TREC_CLASSES))


def _read_mrpc(path: pathlib.Path, position: int) -> Iterable[Example]:
    for number, line in enumerate(_lines(path, "utf-8")[1:], start=2):
        columns = _columns(path, number, line, 5)
        yield Example((_words(columns[3]), _words(columns[4])), _class(path, number, columns[0], ("0", "1")))


def _read_sick(path: pathlib.Path, position: int) -> Iterable[Example]:
    for number, line in enumerate(_lines(path, "utf-8")[1:], start=2):
        columns = _columns(path, number, line, 5)
        yield Example((_words(columns[1]), _words(columns[2])), _class(path, number, columns[4], _SICK_CLASSES))


_LAYOUTS = {
    "mr": _Layout("MR", "MR", {"all": ("rt-polarity.pos", "rt-polarity.neg")}, _read_polarity),
    "cr": _Layout("CR", "CR", {"all": ("custrev.pos", "custrev.neg")}, _read_polarity),
    "subj": _Layout("SUBJ", "SUBJ", {"all": ("subj.objective", "subj.subjective")}, _read_polarity),
    "mpqa": _Layout("MPQA", "MPQA", {"all": ("mpqa.pos", "mpqa.neg")}, _read_polarity),
    "sst2": _Layout(
        "SST2",
        "SST/binary",
        {name: (f"sentiment-{name}",) for name in ("train", "dev", "test")},
        _read_sst,
    ),
    "trec": _Layout("TREC", "TREC", {"train": ("train_5500.label",), "test": ("TREC_10.label",)}, _read_trec),
    "mrpc": _Layout(
        "MRPC",
        "MRPC",
        {name: (f"msr_paraphrase_{name}.txt",) for name in ("train", "test")},
        _read_mrpc,
        reports_f1=True,
    ),
    "sicke": _Layout(
        "SICK-E",
        "SICK",
        {"train": ("SICK_train.txt",), "dev": ("SICK_trial.txt",), "test": ("SICK_test_annotated.txt",)},
        _read_sick,
    ),
}
NAMES = tuple(f"{PREFIX}{name}" for name in _LAYOUTS)
# SentEval's own names of what can be scored -> those here.
SENTEVAL_NAMES = {
    **{name.upper(): name for name in SENTEVAL_SUBSETS},
    **{name.upper(): f"{PREFIX}{name}" for name in _LAYOUTS if name != "sicke"},
    "SICKEntailment": f"{PREFIX}sicke",
}


def read_transfer_task(
    name: str, senteval_dir: str | os.PathLike | None = None, split: str | None = None
) -> TransferTask:
    """The task of one of `NAMES`; `senteval_dir` holds SentEval's `downstream`, or what that holds.

    Raises:
      UserError: there is no such task, a file is missing, a line is not as expected, or a part has only one class.
    """
    if name not in NAMES:
        raise ArgumentError(f"tasks: unknown task {name!r}, expected one of {', '.join(NAMES)}{nearest(name, NAMES)}")
    if split is not None:
        raise ArgumentError(f"split: found {split} for {name}, expected none: SentEval's protocol says what is scored")
    layout = _LAYOUTS[name.removeprefix(PREFIX)]
    if senteval_dir is None:
        raise ArgumentError(
            f"senteval_dir: missing, expected the folder of downstream/{layout.folder}, to score {name}"
        )
    folders = [pathlib.Path(senteval_dir, part, layout.folder) for part in ("downstream", "")]
    folder = next((folder for folder in folders if folder.is_dir()), folders[0])
    parts = {}
    for part, files in layout.parts.items():
        examples: list[Example] = []
        for position, file in enumerate(files):
            found = list(layout.read(folder / file, position))
            if not found:
                raise UserError(f"{folder / file}: found no sentences, expected SentEval's")
            examples += found
        # The classifier is fitted, or chosen, on the other parts.
        if part != "test" and len({example.label for example in examples}) == 1:
            raise UserError(f"{folder / files[0]}: found one class, expected sentences of two or more")
        parts[part] = sorted(examples, key=lambda one: (*(len(text.split()) for text in one.sentences), one.label))
    return TransferTask(name, layout.title, str(folder), parts, layout.reports_f1)
