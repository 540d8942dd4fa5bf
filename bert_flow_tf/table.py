"""Tables of results, for the console."""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

METRIC_NAMES = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "auc": "AUC",
    "f1": "best F1",
    "accuracy": "accuracy",
}
WHY_FLOW = (
    "A flow helps if embeddings lie in a cone, as after masked language modelling:",
    "see run_scripts/paper_effect.sh. Encoders trained for similarity, such as demo, may lose.",
)
NOT_COMPARABLE = "BERT-base, not comparable"  # a note on the paper's figures beside another encoder


class Cell(NamedTuple):
    """A cell's text, None if missing, and a note in brackets."""

    text: str | None
    note: str = ""
    is_number: bool = False


Entry = Cell | str | None


def number(
    value: float | None,
    digits: int = 2,
    spread: float | None = None,
    note: str = "",
    sign: str = "",
) -> Cell:
    """Return a cell with a number ± its deviation; integers get commas.

    A sign is dropped if the number rounds to zero.
    """
    if value is None:
        return Cell(None, note, True)
    text = f"{value:{sign}{'' if digits else ','}.{digits}f}"
    text = text if re.search("[1-9]", text) else text.lstrip("+-")
    return Cell(text if spread is None else f"{text} ± {spread:.{digits}f}", note, True)


def x100(fraction: float | None) -> Cell:
    return number(None if fraction is None else 100 * fraction)


def fall(change: float | None) -> str:
    """Return a note for a fall of more than 0.5, else ""."""
    return f"falls by {-change:.2f}" if change is not None and change < -0.5 else ""


@dataclasses.dataclass
class Table:
    """Rows of cells; columns without any value are dropped.

    Columns of numbers (True in `is_numeric`) are aligned to the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]  # each begins with the row's heading
    title: str = ""
    notes: Sequence[str] = ()  # lines below the table
    has_total: bool = False  # True if the last row sums up the others

    def __post_init__(self) -> None:
        cells = [
            [cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows
        ]
        kept = [i for i in range(len(self.columns)) if any(row[i].text for row in cells)]
        self.columns = [self.columns[i] for i in kept]
        self.rows = self.cells = [[row[i] for i in kept] for row in cells]
        self.is_numeric = [
            any(cell.is_number for cell in column) for column in zip(*self.cells, strict=True)
        ]

    def to_text(self, missing: str = "-") -> str:
        """Return the table's lines for a terminal."""
        lines = [list(self.columns)]
        for row in self.cells:
            notes = [f" ({cell.note})" if cell.note else "" for cell in row]
            texts = [missing if cell.text is None else cell.text for cell in row]
            lines.append([text + note for text, note in zip(texts, notes, strict=True)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [
            f"{'>' if right else '<'}{width}"
            for right, width in zip(self.is_numeric, widths, strict=True)
        ]
        padded = ["  ".join(map(format, line, sides)).rstrip() for line in lines]
        rule = "-" * max(map(len, padded))
        padded.insert(1, rule)
        if self.has_total:
            padded.insert(-1, rule)
        return "\n".join([*([self.title] if self.title else []), *padded, *self.notes])
