"""A report's files: the page, the Markdown and the data, all from one dict."""

import pathlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.files.atomic import new_folder
from bert_flow_tf.files.json_files import to_json
from bert_flow_tf.files.outputs import FolderKind
from bert_flow_tf.report import plots
from bert_flow_tf.report.page import html_page
from bert_flow_tf.report.sections import Section, lead, sections
from bert_flow_tf.results.records import REPORT, RESULTS_FILE, is_of_kind
from bert_flow_tf.results.table import markdown_text

PAGE_FILE, MARKDOWN_FILE = "report.html", "report.md"
REPORT_FOLDER = FolderKind(
    "a report", RESULTS_FILE, (PAGE_FILE, MARKDOWN_FILE, RESULTS_FILE), lambda path: is_of_kind(path, REPORT)
)


def write_report(out: pathlib.Path, report: dict, analysis_plots: Mapping[str, bytes]) -> None:
    """Makes the folder of a report, whole or not at all: `report.html`, `report.md` and `results.json`.

    The same report and plots give the same bytes.

    Args:
      out: the folder.
      report: as `bert_flow_tf.results.collect.collect` gives it.
      analysis_plots: SVG documents of the analyses, as `bert_flow_tf.results.collect.analysis_plots` gives them.

    Raises:
      UserError: the place cannot be written to.
    """
    title, parts, paragraphs = report["title"], sections(report), lead(report)
    page = html_page(title, paragraphs, parts, {**plots.own_plots(report), **analysis_plots}, report["figures"])
    with new_folder(out) as folder:
        (folder / PAGE_FILE).write_text(page, encoding="utf-8")
        (folder / MARKDOWN_FILE).write_text(markdown_page(title, paragraphs, parts), encoding="utf-8")
        (folder / RESULTS_FILE).write_text(to_json(report), encoding="utf-8")


def markdown_page(title: str, lead: Sequence[str], parts: Sequence[Section]) -> str:
    """The report as text: headings, paragraphs, tables and lists. The plots are on the HTML page alone."""
    blocks = [f"# {markdown_text(title)}", *map(markdown_text, lead)]
    for section in parts:
        blocks += [f"## {markdown_text(section.title)}", *map(markdown_text, section.paragraphs)]
        blocks += [table.to_markdown() for table in section.tables]
        for terms in section.terms:
            blocks.append(f"### {markdown_text(terms.title)}")
            blocks.append("\n".join(f"- {markdown_text(term)}: {markdown_text(text)}" for term, text in terms.pairs))
    return "\n\n".join(blocks) + "\n"
