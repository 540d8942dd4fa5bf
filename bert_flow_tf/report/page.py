"""A report as one page of HTML, which needs no network."""

import base64
import dataclasses
import importlib.resources
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jinja2

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.table import Table
from bert_flow_tf.common.version import __version__
from bert_flow_tf.report import plots
from bert_flow_tf.report.collected import LeftOut
from bert_flow_tf.report.pictures import Pictures
from bert_flow_tf.report.plots.style import check_matplotlib
from bert_flow_tf.report.reports import PUBLISHED_COLUMNS, Report, literature_table
from bert_flow_tf.report.rows import ScoreRow
from bert_flow_tf.report.verdict import ALIKE, DIFFERENT, SAME

# The published scores follow these columns.
_FIRST_COLUMNS = ("name", "embedding", "encoder", "task", "metric", "x100")
# The verdict's marks have these classes of the style sheet.
_MARKS = {SAME: " same", ALIKE: " same", DIFFERENT: " different"}


class DrawnPicture(NamedTuple):
    """A picture of the page; the address holds all of it."""

    address: str
    words: str


class Section(NamedTuple):
    """A part of the page."""

    title: str
    tables: Sequence[Table] = ()
    pictures: Sequence[DrawnPicture] = ()
    lines: Sequence[str] = ()


def report_page(report: Report, pictures: Pictures, left_out: Sequence[LeftOut]) -> str:
    """Return the page: scores, pictures, other results, the verdict.

    Args:
      pictures: see `pictures.report_pictures`.
      left_out: what the page names at its end.
    """
    lines = [str(one).removeprefix("left out: ") for one in left_out]
    lines += _not_beside_paper(report.rows)
    drawn: list[DrawnPicture] = []
    try:
        check_matplotlib()
        drawn = [_drawn(picture) for some in pictures.values() for picture in some]
    except UserError as error:
        lines.append(f"pictures: {error}")
    text = importlib.resources.files("bert_flow_tf.report").joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    return environment.from_string(text).render(
        title="Sentence embeddings: scores and measures",
        subtitle=f"bert-flow report, version {__version__}; a click on a column sorts by it.",
        sections=list(_sections(report, lines, drawn)),
        marks=_MARKS,
    )


def _sections(
    report: Report, lines: Sequence[str], pictures: Sequence[DrawnPicture]
) -> Iterator[Section]:
    if report.scores:
        yield Section("Scores, beside the paper's and the TF1 code's", [_beside(report.scores)])
    literature = literature_table()
    yield Section(literature.title, [dataclasses.replace(literature, title="")])
    if pictures:
        yield Section("Pictures", pictures=pictures)
    if report.others:
        yield Section("Comparisons and measures", report.others)
    if report.verdict:
        yield Section("Same as the original?", [report.verdict])
    if lines:
        yield Section("Left out", lines=lines)


def _drawn(picture: plots.Picture) -> DrawnPicture:
    """Draw a picture, whose own title is its text."""
    figure = plots.panels([picture])
    svg = base64.b64encode(plots.to_svg(figure).encode()).decode("ascii")
    title = figure.axes[0].get_title(loc="left")
    return DrawnPicture(f"data:image/svg+xml;base64,{svg}", " ".join(title.split()))


def _not_beside_paper(rows: Sequence[ScoreRow]) -> Iterator[str]:
    """Yield why scores have none of the paper beside them."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.published.paper is None:
            needs = "; ".join(row.unmet) or "a row of its tables"
            names.setdefault(needs, []).append(f"{row.name}, {row.task}".lstrip(", "))
    for needs, found in names.items():
        yield f"the paper's score beside {'; '.join(found)}: needs {needs}"


def _beside(scores: Table) -> Table:
    """Move the published scores beside the scores, where they are seen first."""
    first = [name for name in (*_FIRST_COLUMNS, *PUBLISHED_COLUMNS) if name in scores.columns]
    names = [*first, *(name for name in scores.columns if name not in first)]
    order = [scores.columns.index(name) for name in names]
    rows = [[row[i] for i in order] for row in scores.cells]
    return dataclasses.replace(scores, columns=names, rows=rows)
