"""The tab-separated files of a task, and their reader."""

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence

import numpy as np

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import parse_number, read_lines


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """Columns of a tab-separated file for sentences and a label.

    Attributes:
      name: the file's name in its task's folder.
      sentence_columns: the sentences' columns, from 0.
      label_column: the label's column, from 0; -1 for the last; None if the file has no label.
      header: names of these columns in the first line, see `_find_columns`; None if the first line
        is data.
    """

    name: str
    sentence_columns: tuple[int, ...]
    label_column: int | None = None
    header: tuple[str, ...] | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of the sentences and of the label, if any."""
        return (
            self.sentence_columns
            if self.label_column is None
            else (*self.sentence_columns, self.label_column)
        )

    @property
    def min_columns(self) -> int:
        """The smallest number of columns in a valid row."""
        return max(self.columns) + 1 + (min(self.columns) < 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Pairs of sentences, or single ones, with their labels.

    Attributes:
      sentences_a, sentences_b: [n] each; `sentences_b` is empty for single sentences.
      labels: float64 [n], scores as in the file or class ids.
      has_labels: False if labels are missing and set to 0.
    """

    sentences_a: list[str]
    sentences_b: list[str]
    labels: np.ndarray
    has_labels: bool = True

    def __len__(self) -> int:
        return len(self.sentences_a)

    def take(self, numbers: Sequence[int] | np.ndarray) -> "Examples":
        """Return the examples of these numbers, from 0, in this order."""
        a, b = (
            [column[i] for i in numbers if column]
            for column in (self.sentences_a, self.sentences_b)
        )
        return Examples(a, b, self.labels[numbers], self.has_labels)


# Hugging Face's exports use these names for the first sentence, the second, and the label.
_COMMON_NAMES = (
    ("sentence1", "premise", "question1", "question", "text1", "sentence_a"),
    ("sentence2", "hypothesis", "question2", "sentence", "text2", "sentence_b"),
    ("label", "score", "gold_label", "similarity_score", "relatedness_score"),
)


@dataclasses.dataclass(frozen=True)
class Task:
    """A task's files and labels.

    Attributes:
      name: lower case, as in the original's `--task_name`.
      directory: its folder's name in the GLUE folder.
      files: the layout of "train", "dev" and "test", and of "gold", the test split with its scores
        if they are public.
      is_regression: True if the label is a score for the cosine, False if it is a class.
      label_names: words for the labels 0, 1, …; empty if the file has numbers.
      label_max: the highest score (the lowest is 0); label / label_max is the target of the cosine.
      metric: "spearman", "auc" (of the cosine against the label), or "accuracy" of a trained
        classifier.
      sibling: a folder beside the given folder, to read instead of it; None to read the given
        folder.
      skips_incomplete_rows: True to skip rows with too few columns, as the published files have,
        with a warning.
    """

    name: str
    directory: str
    files: Mapping[str, FileLayout]
    is_regression: bool = True
    label_names: tuple[str, ...] = ()
    label_max: float = 5.0
    metric: str = "spearman"
    sibling: str | None = None
    skips_incomplete_rows: bool = False

    def parse(
        self, rows: list[list[str]], source: str | os.PathLike, layout: FileLayout
    ) -> Examples:
        """Return rows, the header first if the layout has one, as examples.

        Without a label column, labels are 0. `source` is the file's name, for messages.
        """
        lines = list(enumerate(rows, start=1))
        by_name = {name: float(number) for number, name in enumerate(self.label_names)}
        if layout.header is not None and lines:
            given = layout
            layout = _find_columns(layout, lines.pop(0)[1], f"{source}, line 1")
            if layout.columns != given.columns and "entailment" in by_name:
                # Hugging Face's number 0 is entailment, the second of our classes.
                by_name |= {str((i - 1) % len(by_name)): float(i) for i in range(len(by_name))}
        complete = [(line, row) for line, row in lines if len(row) >= layout.min_columns]
        if len(complete) < len(lines):
            line, row = next(one for one in lines if len(one[1]) < layout.min_columns)
            message = (
                f"{source}, line {line}: found {len(row)} columns, expected at least "
                f"{layout.min_columns}"
            )
            if not self.skips_incomplete_rows:
                raise UserError(message)
            logging.getLogger(__name__).warning(
                "%s; skipped %d such lines", message, len(lines) - len(complete)
            )
        if not complete:
            raise UserError(f"{source}: found no examples, expected at least one row")
        first, *second = (
            [row[column] for _, row in complete] for column in layout.sentence_columns
        )
        sentences_b = second[0] if second else []
        label_column = layout.label_column
        labels = list[float]()
        if label_column is None:
            return Examples(first, sentences_b, np.zeros(len(first)), has_labels=False)
        for line, row in complete:
            text = row[label_column]
            cell = f"{source}, line {line}, column {label_column % len(row) + 1}"
            if by_name and text not in by_name:
                raise UserError(
                    f"{cell}: found label {text!r}, expected one of {', '.join(by_name)}"
                )
            labels.append(by_name[text] if by_name else parse_number(text, cell))
            if not 0 <= labels[-1] <= self.label_max and not by_name:
                raise UserError(f"{cell}: found score {text}, expected 0 to {self.label_max:g}")
        return Examples(first, sentences_b, np.array(labels))


def read_rows(path: str | os.PathLike) -> list[list[str]]:
    """Return the cells of each line; quotes are ordinary characters."""
    return [line.split("\t") for line in read_lines(path)]


def _find_columns(layout: FileLayout, header: Sequence[str], source: str) -> FileLayout:
    """Return the layout with the columns that have its names, else `_COMMON_NAMES`."""
    names = [name.strip().lower() for name in header]
    columns = []
    for column, name, common in zip(
        layout.columns, layout.header or (), _COMMON_NAMES, strict=False
    ):
        found = next((one for one in (name.lower(), *common) if one in names), None)
        if found is None:
            raise UserError(
                f"{source}: found no column {name!r}, expected it or one of {', '.join(common)}"
            )
        # Keep -1 for the last column, because rows may be longer than the header.
        columns.append(column if names[column:][:1] == [found] else names.index(found))
    sentences = columns[: len(layout.sentence_columns)]
    label = columns[len(layout.sentence_columns) :]
    return dataclasses.replace(
        layout, sentence_columns=tuple(sentences), label_column=label[0] if label else None
    )
