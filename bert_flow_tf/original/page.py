"""A report as one page of HTML, which needs no network."""

import dataclasses
import importlib.resources
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jinja2

from bert_flow_tf.original.records import LeftOut
from bert_flow_tf.original.reports import PUBLISHED_COLUMNS, Report, literature_table
from bert_flow_tf.original.verdict import ALIKE, DIFFERENT, SAME
from bert_flow_tf.table import Table
from bert_flow_tf.version import __version__

# The verdict's marks have these classes of the style sheet.
_MARKS = {SAME: " same", ALIKE: " same", DIFFERENT: " different"}


class Section(NamedTuple):
    """A part of the page; `pictures` are SVG."""

    title: str
    tables: Sequence[Table] = ()
    pictures: Sequence[str] = ()
    lines: Sequence[str] = ()


def report_page(report: Report, left_out: Sequence[LeftOut], pictures: Sequence[str] = ()) -> str:
    """Return the page: scores, pictures, other results, the verdict.

    Args:
      pictures: of the results, as SVG.
    """
    text = (
        importlib.resources.files("bert_flow_tf.original").joinpath("page.html").read_text("utf-8")
    )
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    return environment.from_string(text).render(
        title="Sentence embeddings: scores and measures",
        subtitle=f"bert-flow report, version {__version__}; a click on a column sorts by it.",
        sections=list(_sections(report, left_out, pictures)),
        marks=_MARKS,
    )


def _sections(
    report: Report, left_out: Sequence[LeftOut], pictures: Sequence[str]
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
    if left_out:
        yield Section("Left out", lines=[f"{one.path}: {one.reason}" for one in left_out])


def _beside(scores: Table) -> Table:
    """Move the published scores beside the scores."""
    published = [name for name in PUBLISHED_COLUMNS if name in scores.columns]
    others = [name for name in scores.columns if name not in published]
    after = others.index("x100") + 1
    names = [*others[:after], *published, *others[after:]]
    order = [scores.columns.index(name) for name in names]
    rows = [[row[i] for i in order] for row in scores.cells]
    return dataclasses.replace(scores, columns=names, rows=rows)
