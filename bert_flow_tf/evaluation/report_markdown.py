"""A report's sections as Markdown, of GitHub's kind."""

import html
import re
from collections.abc import Sequence

from bert_flow_tf.evaluation.report_cells import Cell, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def markdown_page(title: str, lead: Sequence[str], parts: Sequence[Section]) -> str:
    """The report as text: a heading, paragraphs, tables and lists. The plots are on the HTML page alone.

    Args:
      title: of the report.
      lead: paragraphs below it.
      parts: the sections.
    """
    blocks = [f"# {escaped(title)}", *map(escaped, lead)]
    for section in parts:
        blocks.append(f"## {escaped(section.title)}")
        blocks += map(escaped, section.paragraphs)
        for table in section.tables:
            blocks += [f"**{escaped(table.caption)}**", _table(table)]
        for terms in section.terms:
            blocks.append(f"### {escaped(terms.title)}")
            blocks.append("\n".join(f"- {escaped(term)}: {escaped(text)}" for term, text in terms.pairs))
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Text on one line in which no character means anything to Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _table(table: Table) -> str:
    rules = [":--" if column in table.words else "--:" for column in range(len(table.columns))]
    lines = [[escaped(column) for column in table.columns], rules]
    lines += [[_cell(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(cell: Cell) -> str:
    return f"{escaped(cell.text)} ({escaped(cell.note)})" if cell.note else escaped(cell.text)
