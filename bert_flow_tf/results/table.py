"""A table of results: built once, written as text for a terminal, as Markdown or as HTML."""

import dataclasses
import html
import re
from collections.abc import Sequence

from bert_flow_tf.files.markup import markdown_text

METRIC_NAMES = {"spearman": "Spearman", "pearson": "Pearson", "auc": "AUC", "accuracy": "accuracy"}
# x100.
_FALL = 0.5
# Why it may be.
WHY_FLOW = (
    "A flow helps where embeddings lie in a cone, as masked language modelling leaves them: run_scripts/paper_effect.sh"
    " shows it.",
    "An encoder that has learned sentence similarity, as the demo encoder has, may gain nothing, or lose.",
)
_GAP, _MINUS = "  ", "−"


@dataclasses.dataclass(frozen=True)
class Cell:
    """Words or a figure, and how they are printed."""

    value: str | float | None  # None for what is missing.
    spec: str = ""  # Python's format specification of a number, such as ".2f".
    spread: float | None = None  # The number's standard deviation, printed after ±.
    note: str = ""  # What a reader should know of the value, printed small or in brackets.
    is_news: bool = False  # Whether a number above zero is good news and one below bad, which a page colours.

    def text(self, *, missing: str, minus: str) -> str:
        """The value as text: `missing` for None, `minus` before negative numbers."""
        if self.value is None:
            return missing
        if isinstance(self.value, str):
            return self.value
        text = _formatted(self.value, self.spec, minus)
        return text if self.spread is None else f"{text} ± {_formatted(self.spread, self.spec, minus)}"


# Note of a figure of the paper beside one of another encoder.
NOT_COMPARABLE = "BERT-base, not comparable"

# Words stand for their cell, None for one that is missing.
Entry = Cell | str | None


def number(value: float | None, digits: int = 2, *, spread: float | None = None, note: str = "") -> Cell:
    """A cell of a number with `digits` decimals."""
    return Cell(value, f".{digits}f", spread, note)


def x100(fraction: float | None) -> Cell:
    """A cell of a fraction times 100, with two decimals."""
    return number(None if fraction is None else 100 * fraction)


def difference(value: float | None, *, note: str = "", is_news: bool = False) -> Cell:
    """A cell with a sign, unless it rounds to zero, and two decimals."""
    return Cell(value, "+.2f", note=note, is_news=is_news)


def fall(off: float | None) -> str:
    """Note of a score times 100 that is lower by more than half a point; "" of any other."""
    return f"falls by {-off:.2f}" if off is not None and off < -_FALL else ""


def count(value: int | None) -> Cell:
    """A cell of a whole number with commas between the thousands."""
    return Cell(value, ",d")


@dataclasses.dataclass
class Table:
    """A table; a `ValueError` if a row has more or fewer cells than there are columns.

    A column whose cells are all words goes to the left, one of figures to the right.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Entry]]  # The first entry of each is the row's heading.
    title: str = ""
    notes: Sequence[str] = ()  # Lines below the table.
    has_total: bool = False  # Whether the last row sums up the others.

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row {row}: found {len(row)} cells, expected {len(self.columns)}")
        self._cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]
        self._of_words = [all(isinstance(value, str) for value in values) and bool(values) for values in self._values()]

    def _values(self) -> list[list[str | float]]:
        """What is not missing, of each column."""
        columns = ([row[i].value for row in self._cells] for i in range(len(self.columns)))
        return [[value for value in column if value is not None] for column in columns]

    def without_empty_columns(self) -> "Table":
        """The table without the columns in which every cell is missing."""
        kept = [i for i, values in enumerate(self._values()) if values]
        rows = [[row[i] for i in kept] for row in self.rows]
        return dataclasses.replace(self, columns=[self.columns[i] for i in kept], rows=rows)

    def to_text(self, missing: str = "-") -> str:
        """Lines for a terminal: columns of one width, a rule below the headings and above a total."""
        lines = [list(self.columns)]
        for row in self._cells:
            texts = (cell.text(missing=missing, minus="-") for cell in row)
            lines.append([_with_note(text, cell.note) for text, cell in zip(texts, row, strict=True)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        pads = [str.ljust if of_words else str.rjust for of_words in self._of_words]
        padded = [
            _GAP.join(pad(text, width) for pad, text, width in zip(pads, line, widths, strict=True)).rstrip()
            for line in lines
        ]
        rule = "-" * max(map(len, padded))
        padded.insert(1, rule)
        if self.has_total:
            padded.insert(-1, rule)
        return "\n".join([*([self.title] if self.title else []), *padded, *self.notes])

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown, its title above it and its notes below."""
        lines = [[markdown_text(column) for column in self.columns]]
        lines.append([":--" if of_words else "--:" for of_words in self._of_words])
        for row in self._cells:
            texts = (markdown_text(cell.text(missing="", minus=_MINUS)) for cell in row)
            lines.append([_with_note(text, markdown_text(cell.note)) for text, cell in zip(texts, row, strict=True)])
        title = [f"**{markdown_text(self.title)}**"] if self.title else []
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([*title, table, *map(markdown_text, self.notes)])

    def to_html(self, name: str) -> str:
        """A `<table>` in a region that scrolls on its own, with the keyboard too; its notes are paragraphs below.

        `name` is the id of its caption, different from every other id of the page.
        """
        kinds = ["" if of_words else ' class="figure"' for of_words in self._of_words]
        # A heading without words is none.
        heads = [
            f'<th scope="col"{kind}>{html_text(title)}</th>' if title else "<td></td>"
            for kind, title in zip(kinds, self.columns, strict=True)
        ]
        lines = [
            f'<div class="scroll" role="region" aria-labelledby="{name}" tabindex="0"><table>',
            f'<caption id="{name}">{html_text(self.title)}</caption>',
            f"<thead><tr>{''.join(heads)}</tr></thead>",
            "<tbody>",
        ]
        for row in self._cells:
            texts = [html_text(cell.text(missing="", minus=_MINUS)) + html_note(cell.note) for cell in row]
            cells = [
                f'<td{_class(cell, kind)} data-label="{html_text(title)}">{text}</td>'
                for cell, kind, title, text in zip(row, kinds, self.columns, texts, strict=True)
            ][1:]
            lines.append(f'<tr><th scope="row"{kinds[0]}>{texts[0]}</th>{"".join(cells)}</tr>')
        return "\n".join([*lines, "</tbody></table></div>", *(f"<p>{html_text(note)}</p>" for note in self.notes)])


def _class(cell: Cell, kind: str) -> str:
    if not cell.is_news or not isinstance(cell.value, float) or not cell.value:
        return kind
    return f' class="figure {"rise" if cell.value > 0 else "fall"}"'


def html_text(text: str) -> str:
    """Text that is no markup, in an element or in an attribute's double quotes."""
    return html.escape(text, quote=True)


def html_note(text: str) -> str:
    """Small print beside a text; nothing for an empty note."""
    return f'<span class="note">{html_text(text)}</span>' if text else ""


def _with_note(text: str, note: str) -> str:
    return f"{text} ({note})" if note else text


def _formatted(value: float, spec: str, minus: str) -> str:
    text = format(value, spec)
    # What rounds to zero has no sign.
    return text.replace("-", minus) if re.search("[1-9]", text) else text.lstrip("+-")
