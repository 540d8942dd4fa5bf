"""Tables of results as text, CSV, Markdown, LaTeX and JSON."""

import csv
import dataclasses
import io
import itertools
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_flow_tf.common.errors import one_line

# `Table.to_format` takes these names.
FORMATS = ("text", "csv", "markdown", "latex", "json")

# A wrapped column keeps this width if its words or notes are as long.
_LEAST_WIDTH = 12
_GAP = "  "
# Names of files and models may be broken behind a slash or an underscore.
_BREAKS = re.compile(r"(\s+)|(?<=\w[/_])(?=\w)")
# GitHub reads dollars as mathematics.
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&#$])")
# LaTeX would join these signs with the one before: two hyphens to a dash, two quotes to one.
_LATEX_JOINED = re.compile(r"(?<=-)(?=-)|(?<=[`?!])(?=`)|(?<=')(?=')")
_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "±": r"$\pm$",
    "≈": r"$\approx$",
    "×": r"$\times$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "Δ": r"$\Delta$",
    "–": "--",
    "…": r"\ldots{}",
    "ℓ": r"$\ell$",
}


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
      text: None if missing.
      note: shown in brackets behind the text.
      is_number: True to align the cell to the right, and never to break it.
      value: the number with all its digits, for programs.
      parts: what else programs get of this cell, by name, such as its deviation.
    """

    text: str | None
    note: str = ""
    is_number: bool = False
    value: float | None = None
    parts: Mapping[str, float | str] = {}

    @property
    def datum(self) -> float | str | None:
        """The number, else the text."""
        return self.text if self.value is None else self.value

    @property
    def data(self) -> dict[str, float | str | None]:
        """The cell's values, by the ends of their columns' names."""
        others = self.parts or ({"note": self.note} if self.note else {})
        return {"": self.datum, **{f" {name}": value for name, value in others.items()}}


Entry = Cell | str | None


def number(
    value: float | None,
    digits: int = 2,
    spread: float | None = None,
    note: str = "",
    sign: str = "",
    parts: Mapping[str, float | str] | None = None,
) -> Cell:
    """Return a cell with a number ± its deviation; integers get commas.

    A sign is dropped if the number rounds to zero. `parts` are the values that `note` shows.
    """
    parts = parts or {}
    if value is None:
        return Cell(None, note, True, parts=parts)
    text = f"{value:{sign}{'' if digits else ','}.{digits}f}"
    text = text if re.search("[1-9]", text) else text.lstrip("+-")
    if spread is not None:
        text = f"{text} ± {spread:.{digits}f}"
        parts = {"std": spread, **parts}
    return Cell(text, note, True, value, parts)


def x100(fraction: float | None) -> Cell:
    return number(None if fraction is None else 100 * fraction)


@dataclasses.dataclass
class Table:
    """Rows of cells; columns without any value are dropped.

    Columns of numbers (True in `is_numeric`) are aligned to the right. Texts are lines without
    control characters, whatever a name holds; each format escapes what else it reads.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]  # each begins with the row's heading
    title: str = ""
    notes: Sequence[str] = ()  # lines below the table
    has_total: bool = False  # True if the last row sums up the others

    def __post_init__(self) -> None:
        cells = [[_cell(entry) for entry in row] for row in self.rows]
        self.title = one_line(self.title)
        self.notes = [one_line(note) for note in self.notes]
        self.columns = [one_line(name) for name in self.columns]
        kept = [i for i in range(len(self.columns)) if any(row[i].text for row in cells)]
        self.columns = [self.columns[i] for i in kept]
        self.rows = self.cells = [[row[i] for i in kept] for row in cells]
        self.is_numeric = [
            any(cell.is_number for cell in column) for column in zip(*self.cells, strict=True)
        ]

    def to_text(self, missing: str = "-", width: int | None = None) -> str:
        """Return the table's lines for a terminal.

        Args:
          width: of the terminal; text is wrapped to it, numbers are never broken. None for lines
            of any length.
        """
        title = [self.title] if self.title else []
        blocks = "\n\n".join("\n".join(block) for block in self._blocks(missing, width))
        return "\n".join([*_filled(title, width), blocks, *_filled(self.notes, width)])

    def _blocks(self, missing: str, width: int | None) -> Iterator[list[str]]:
        """Yield blocks of columns; each begins with the first column."""
        header = [Cell(name) for name in self.columns]
        columns = [*zip(header, *self.cells, strict=True)]
        least = [max(_least_width(cell, missing) for cell in column) for column in columns]
        for chosen in _grouped(least, width):
            widths = [max(len(_shown(cell, missing)) for cell in columns[i]) for i in chosen]
            if width is not None:
                room = width - len(_GAP) * (len(chosen) - 1)
                widths = _narrowed(widths, [least[i] for i in chosen], room)
            sides = [">" if self.is_numeric[i] else "<" for i in chosen]
            rows = zip(*(columns[i] for i in chosen), strict=True)
            yield self._ruled([_padded(row, widths, sides, missing) for row in rows])

    def _ruled(self, rows: Sequence[list[str]]) -> list[str]:
        """Return the lines of all rows, with a rule below the header."""
        rule = "-" * max(len(line) for lines in rows for line in lines)
        found = [*rows[0], rule, *(line for lines in rows[1:] for line in lines)]
        if self.has_total:
            found.insert(-len(rows[-1]), rule)
        return found

    def to_format(self, name: str) -> str:
        """Return the table in one of `FORMATS`."""
        if name == "json":
            return json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        formats = {
            "text": self.to_text,
            "csv": self.to_csv,
            "markdown": self.to_markdown,
            "latex": self.to_latex,
        }
        return formats[name]()

    def to_csv(self) -> str:
        """Return CSV with all digits; deviations and notes have their own columns."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        names = self._data_names()
        writer.writerow([f"{self.columns[i]}{end}" for i, end in names])
        for row in self.cells:
            writer.writerow([row[i].data.get(end) for i, end in names])
        return file.getvalue().removesuffix("\n")

    def to_json(self) -> dict[str, Any]:
        """Return title, rows and notes; rows are dicts of `to_csv`'s columns."""
        names = self._data_names()
        rows = [
            {f"{self.columns[i]}{end}": _of_json(row[i].data.get(end)) for i, end in names}
            for row in self.cells
        ]
        return {"title": self.title, "rows": rows, "notes": [*self.notes]}

    def _data_names(self) -> list[tuple[int, str]]:
        """Return columns for programs: a number, and a name's end."""
        ends = [
            dict.fromkeys(end for cell in column for end in cell.data)
            for column in zip(*self.cells, strict=True)
        ]
        return [(i, end) for i, names in enumerate(ends) for end in names]

    def to_markdown(self, missing: str = "") -> str:
        """Return a table of GitHub's Markdown."""
        rows = [[_shown(cell, missing) for cell in row] for row in self.cells]
        rules = ["---:" if right else "---" for right in self.is_numeric]
        lines = [map(_escaped_markdown, self.columns), rules]
        lines += [map(_escaped_markdown, row) for row in rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def to_latex(self, missing: str = "--") -> str:
        """Return a `tabular` with the rules of the package booktabs."""
        rows = [_latex_row(row, missing) for row in self.cells]
        if self.has_total:
            rows.insert(-1, r"\midrule")
        sides = "".join("r" if right else "l" for right in self.is_numeric)
        lines = [
            r"% \usepackage{booktabs}",
            rf"\begin{{tabular}}{{{sides}}}",
            r"\toprule",
            _latex_row([Cell(name) for name in self.columns], missing),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines)


def _cell(entry: Entry) -> Cell:
    """Return a cell whose texts are one line each."""
    cell = entry if isinstance(entry, Cell) else Cell(entry)
    text = None if cell.text is None else one_line(cell.text)
    return cell._replace(text=text, note=one_line(cell.note))


def _shown(cell: Cell, missing: str) -> str:
    """Return text and note, as a reader sees them."""
    text = missing if cell.text is None else cell.text
    return f"{text} ({cell.note})" if cell.note else text


def _words(text: str) -> list[str]:
    """Split text where a line may end."""
    return [part for part in _BREAKS.split(text) if part]


def _grouped(widths: Sequence[int], total: int | None) -> list[list[int]]:
    """Return each block's columns; all begin with the first column."""
    groups = [[0]]
    for i in range(1, len(widths)):
        taken = sum(widths[one] + len(_GAP) for one in groups[-1])
        if total is not None and taken + widths[i] > total and len(groups[-1]) > 1:
            groups.append([0])
        groups[-1].append(i)
    return groups


def _padded(
    row: Sequence[Cell], widths: Sequence[int], sides: Sequence[str], missing: str
) -> list[str]:
    """Return the lines of a row, wrapped to the columns' widths."""
    cells = [_wrapped(cell, width, missing) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for texts in itertools.zip_longest(*cells, fillvalue=""):
        padded = zip(texts, sides, widths, strict=True)
        lines.append(_GAP.join(f"{text:{side}{w}}" for text, side, w in padded).rstrip())
    return lines


class _Wrapper(textwrap.TextWrapper):
    """Wraps text, and breaks names of files at their slashes."""

    wordsep_re = _BREAKS


def _wrapped(cell: Cell, width: int, missing: str) -> list[str]:
    """Return a cell's lines; a number's note may follow below it."""
    shown = _shown(cell, missing)
    if len(shown) <= width:
        return [shown]
    if not cell.is_number:
        return _Wrapper(width).wrap(shown)
    return [missing if cell.text is None else cell.text, *_Wrapper(width).wrap(f"({cell.note})")]


def _least_width(cell: Cell, missing: str) -> int:
    """Return the width that a column needs for a cell."""
    if not cell.is_number:
        longest = max(map(len, _words(_shown(cell, missing))), default=0)
        return min(longest, _LEAST_WIDTH)
    note = len(f"({cell.note})") if cell.note else 0
    return max(len(missing if cell.text is None else cell.text), min(note, _LEAST_WIDTH))


def _narrowed(widths: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Narrow the widest columns until all fit, if they can."""
    found = [*widths]
    for _ in range(sum(widths) - total):
        wide = [i for i, width in enumerate(found) if width > least[i]]
        if wide:
            found[max(wide, key=found.__getitem__)] -= 1
    return found


def _filled(lines: Iterable[str], width: int | None) -> list[str]:
    """Return lines of text, wrapped to a width."""
    if width is None:
        return [*lines]
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    return [part for line in lines for part in wrapper.wrap(line)]


def _of_json(value: float | str | None) -> float | str | None:
    """Return None for a number that JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _escaped_markdown(text: str) -> str:
    return _MARKDOWN_SPECIAL.sub(r"\\\1", text)


def _escaped_latex(text: str) -> str:
    apart = _LATEX_JOINED.split(text)
    escaped = (
        "".join(_LATEX_SPECIAL.get(character, character) for character in part) for part in apart
    )
    return "{}".join(escaped)


def _latex_row(row: Sequence[Cell], missing: str) -> str:
    cells = []
    for cell in row:
        text = missing if cell.text is None else _escaped_latex(_shown(cell, missing))
        # A hyphen is shorter than a minus.
        cells.append(re.sub(r"(?<!\w)-(?=\d)", "$-$", text) if cell.is_number else text)
    # The \\ of the line before would take a first [ or * as its argument.
    start = "{}" if cells[0].startswith(("[", "*")) else ""
    return start + " & ".join(cells) + r" \\"
