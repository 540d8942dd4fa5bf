"""A report's page: tables and plots in one HTML file."""

import base64
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import jinja2

from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.reading import read_text
from bert_flow_tf.results import tables
from bert_flow_tf.results.records import Comparison, IsotropyResults, Lexical, Source, Verification, Words
from bert_flow_tf.results.rows import score_rows
from bert_flow_tf.results.verdict import verdict, verdict_table

PAGE_FILE = "report.html"
REPORT_FOLDER = FolderKind("a report", PAGE_FILE, (PAGE_FILE,))
# Each kind of result has a heading, the file of its plot, if any, and a note.
_ANALYSES = {
    Comparison: ("Calibrations", "", "Table 5: BERT-base, mean of the last layer."),
    Lexical: ("Lexical similarity", "lexical", "Spearman × 100 of each similarity. Edit distance counts words."),
    Words: ("Word frequency", "words", "Word embeddings by frequency rank; Table 1 counts words in other text."),
    IsotropyResults: ("Isotropy", "spectrum", "Standard normal: the same number of random draws."),
}
_COMPARED = (
    "Paper: the row of Tables 2 to 4 (for a flow on train only, the original's README) with the same encoder, "
    "training and protocol; TF1 code: the mean of the original's runs on the same weights, pooling and flow. wmean: "
    "mean over the sets of STS-12 to STS-16, weighted by their pairs as in the paper; mean: plain mean; all: all pairs."
)


def write_report(out: pathlib.Path, title: str, sources: Sequence[Source]) -> None:
    """Write a report's folder atomically.

    Args:
      out: the folder, which is replaced if it exists.
      title: heading of the page.
      sources: results in the order of the rows; sections without results are left out.

    Raises:
      UserError: the folder is not writable, or a file beside a result is unreadable.
    """
    environment = jinja2.Environment(loader=jinja2.PackageLoader("bert_flow_tf.results", ""), autoescape=True)
    environment.filters["base64"] = lambda content: base64.b64encode(content.encode()).decode()
    shown = [section for section in _sections(sources) if section["tables"]]
    page = environment.get_template("page.html.j2").render(title=title, sections=shown)
    with new_folder(out) as folder:
        (folder / PAGE_FILE).write_text(page, encoding="utf-8")


def _sections(sources: Sequence[Source]) -> Iterator[dict[str, object]]:
    rows = score_rows(sources)
    claims = verdict([one.result for one in sources if isinstance(one.result, Verification)], rows)
    yield {"title": "Verdict", "tables": [verdict_table(claims)] if claims else []}
    yield {"title": "Scores", "note": _COMPARED, "tables": [tables.rows_table(rows)] if rows else []}
    for kind, (heading, plot, note) in _ANALYSES.items():
        found = [one for one in sources if isinstance(one.result, kind)]
        made = [(one.label, tables.TABLES[kind](one.result)) for one in found]
        titled = [dataclasses.replace(one, title=f"{label}: {one.title}".rstrip(": ")) for label, one in made]
        drawn = [(one.label, read_text(one.path.with_name(f"{plot}.svg"), "a plot")) for one in found if plot]
        yield {"title": heading, "note": note, "tables": titled, "plots": drawn}
    yield {"title": "Sources", "tables": [tables.sources_table(sources)]}
