"""What a report's sections are made of, and how figures are written in its cells."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text of a cell, and what is said of it in small."""

    text: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes:
      caption: what it is.
      columns: headings, one a column.
      words: numbers of the columns that hold words, which go to the left; the others hold figures.
      rows: lists of `Cell`.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset({0})


@dataclasses.dataclass(frozen=True)
class Terms:
    """A list of terms and what is said of each, under a heading and the short of it."""

    title: str
    note: str
    pairs: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, paragraphs, tables, names of the figures that belong there, and lists of terms."""

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[str] = ()
    terms: Sequence[Terms] = ()


def encoder_words(encoder: dict) -> str:
    """An encoder in words: its name, or the end of its handle, and what it was fine-tuned on."""
    words = encoder["name"] or encoder["handle"].rstrip("/").rpartition("/")[2]
    tuned = {
        None: "",
        "NLI": ", fine-tuned on NLI",
        "other": ", fine-tuned",
        "unknown": ", its training is not recorded",
    }
    if encoder["fine_tuning"] and encoder["fingerprint"]:
        return f"{words}{tuned[encoder['fine_tuning']]} ({encoder['fingerprint'][:8]})"
    return words + tuned[encoder["fine_tuning"]]


def encoder_and_pooling(encoder: dict) -> str:
    """An encoder and its pooling in words, for a caption."""
    pooling = f", {encoder['pooling']}" if encoder["pooling"] else ""
    return f"Encoder: {encoder_words(encoder)}{pooling}"


def plots_of(report: dict, kind: str) -> list[str]:
    """Names of the report's figures of one kind."""
    return [name for name in report["figures"] if name.startswith(kind)]


def figure_cell(summary: dict) -> Cell:
    """A score: mean, with deviation and median in small where there are several."""
    if summary["n"] == 1:
        return Cell(fixed(summary["mean_x100"]))
    text = f"{fixed(summary['mean_x100'])} ± {fixed(summary['std_x100'])}"
    return Cell(text, f"median {fixed(summary['median_x100'])}, n = {summary['n']}")


def published_cell(paper: dict | None) -> Cell:
    """The paper's figure, its row in small; empty for None."""
    if paper is None:
        return Cell("")
    source = "" if paper["source"] == "paper" else f" ({paper['source']})"
    return Cell(fixed(paper["mean_x100"]), f"{paper['row']}{source}")


def original_cell(original: dict | None) -> Cell:
    """The TF1 code's figure, its seeds in small; empty for None."""
    if original is None:
        return Cell("")
    seeds = original["seeds"]
    note = f"seed{'s' if len(seeds) > 1 else ''} {listed(seeds)}" if seeds else ""
    return Cell(fixed(original["mean_x100"]), note)


def listed(values: Sequence[int]) -> str:
    """The numbers with commas between."""
    return ", ".join(map(str, values))


def fixed(value: float | None, digits: int = 2) -> str:
    """The number with so many decimals; nothing for None."""
    if value is None:
        return ""
    text = f"{value:.{digits}f}"
    # What rounds to zero has no sign.
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float | None) -> str:
    """The difference with its sign and two decimals; nothing for None."""
    if value is None:
        return ""
    text = fixed(value)
    return text if text.startswith("−") or text == "0.00" else f"+{text}"


def count(value: int | None) -> str:
    """The number with commas; nothing for None."""
    return "" if value is None else f"{value:,}"
