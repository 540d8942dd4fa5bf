"""SentEval's transfer tasks: sentences, or pairs of them, and their classes.

MR, CR, SUBJ and MPQA have a file per class, one sentence per line, and no splits. SST2 has lines of
a sentence, a tab and 0 or 1; TREC of `CLASS:subclass question`; MRPC is Microsoft's own table. The
files per class and TREC are read as Latin-1, as SentEval does, whatever they hold.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, Table 1.
"""

import pathlib

import numpy as np

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.tasks.pair_files import Examples, FileLayout, Task, read_rows
from bert_flow_tf.tasks.tasks import MRPC

# The only part of a task without splits.
ALL = "all"
# The file of class 1 comes first, because SentEval numbers the classes so.
_FILES_BY_CLASS = {
    "mr": ("rt-polarity.pos", "rt-polarity.neg"),
    "cr": ("custrev.pos", "custrev.neg"),
    "subj": ("subj.objective", "subj.subjective"),
    "mpqa": ("mpqa.pos", "mpqa.neg"),
}
_TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_BINARY = ("0", "1")


def _transfer_task(
    name: str, directory: str, files: dict[str, FileLayout], label_names: tuple[str, ...] = _BINARY
) -> Task:
    return Task(
        name=name,
        directory=directory,
        files=files,
        is_regression=False,
        label_names=label_names,
        metric="accuracy",
    )


_TASKS = (
    *(_transfer_task(name, name.upper(), {}) for name in _FILES_BY_CLASS),
    _transfer_task(
        "sst2",
        "SST/binary",
        {part: FileLayout(f"sentiment-{part}", (0,), 1) for part in ("train", "dev", "test")},
    ),
    _transfer_task(
        "trec",
        "TREC",
        {
            "train": FileLayout("train_5500.label", (1,), 0),
            "test": FileLayout("TREC_10.label", (1,), 0),
        },
        _TREC_CLASSES,
    ),
    _transfer_task("mrpc", "MRPC", dict(zip(("train", "test"), MRPC, strict=True))),
)
TASKS = {task.name: task for task in _TASKS}


def read_parts(task: Task, folder: pathlib.Path) -> dict[str, Examples]:
    """Read the parts of a task.

    They are `ALL`, or train and test, with dev if the task has it. The examples have SentEval's
    order, because its folds depend on it.
    """
    if task.name in _FILES_BY_CLASS:
        parts = {ALL: _read_files_by_class(task.name, folder)}
    else:
        parts = {part: _read_part(task, folder, part) for part in task.files}
    return {part: _embeddable(_in_sentevals_order(one)) for part, one in parts.items()}


def _read_files_by_class(name: str, folder: pathlib.Path) -> Examples:
    """Read the sentences of class 1, then those of class 0."""
    positive, negative = (_read_sentences(folder / file) for file in _FILES_BY_CLASS[name])
    labels = np.repeat([1.0, 0.0], [len(positive), len(negative)])
    return Examples(positive + negative, [], labels)


def _read_sentences(path: pathlib.Path) -> list[str]:
    # SentEval's line ends are those of `splitlines`, so a UTF-8 letter may break a line.
    sentences = [_words(line) for line in _read_latin1(path).splitlines()]
    if not sentences:
        raise UserError(f"{path}: found no sentences, expected one per line")
    return sentences


def _read_part(task: Task, folder: pathlib.Path, part: str) -> Examples:
    layout = task.files[part]
    path = folder / layout.name
    rows = _read_questions(path) if task.name == "trec" else read_rows(path)
    return task.parse(rows, path, layout)


def _read_questions(path: pathlib.Path) -> list[list[str]]:
    """Return TREC's class and question of each line."""
    lines = _read_latin1(path).removesuffix("\n").split("\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        category, colon, rest = line.strip().partition(":")
        _, space, question = rest.partition(" ")
        if not (colon and space):
            raise UserError(
                f"{path}, line {number}: found {line[:40]!r}, expected CLASS:subclass question"
            )
        rows.append([category, _words(question)])
    return rows


def _read_latin1(path: pathlib.Path) -> str:
    with reading(path, "sentences"), open(path, encoding="latin-1") as file:
        return file.read()


def _words(line: str) -> str:
    """Return words between single spaces."""
    return " ".join(line.split())


def _in_sentevals_order(examples: Examples) -> Examples:
    """Sort by the number of words of each sentence, then by class."""
    sides = [side for side in (examples.sentences_b, examples.sentences_a) if side]
    lengths = [np.array([len(sentence.split()) for sentence in side]) for side in sides]
    # The last key of `lexsort` counts most; it keeps the order of equal keys.
    return examples.take(np.lexsort([examples.labels, *lengths]))


def _embeddable(examples: Examples) -> Examples:
    """Replace empty sentences by ".", as SentEval does when it embeds them."""
    first, second = (
        [one or "." for one in side] for side in (examples.sentences_a, examples.sentences_b)
    )
    return Examples(first, second, examples.labels)
