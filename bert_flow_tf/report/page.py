"""A report's page: sections of tables and plots, in one HTML file that loads nothing."""

import base64
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jinja2

from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.reading import read_file
from bert_flow_tf.report import plots, tables
from bert_flow_tf.results.records import Calibrations, IsotropyResults, Lexical, Verification, Words
from bert_flow_tf.results.rows import ScoreRow, score_rows
from bert_flow_tf.results.sources import Source
from bert_flow_tf.results.table import METRIC_NAMES, Table
from bert_flow_tf.results.verdict import verdict, verdict_table
from bert_flow_tf.runs.record import TrainingResults

PAGE_FILE = "report.html"
REPORT_FOLDER = FolderKind("a report", PAGE_FILE, (PAGE_FILE,))
# Kind of an analysis -> heading, its plot beside its results, and a note.
_ANALYSES = {
    Lexical: ("Lexical similarity", "lexical", "Spearman × 100 of each similarity. Edit distance counts words."),
    Words: ("Word frequency", "words", "Word embeddings by frequency rank; the ranks of Table 1 are of other text."),
    IsotropyResults: ("Isotropy", "spectrum", "Standard normal: as many draws, as isotropic embeddings look."),
}
_COMPARED = (
    "Paper: the row of Tables 2 to 4 (train only: of the original's README) with the same encoder, training and "
    "protocol; TF1 code: the mean of the original's runs on the same weights, pooling and flow. wmean: mean over the "
    "sets of STS-12 to STS-16 weighted by their pairs, as in the paper; mean: plain mean; all: all pairs together."
)


class Section(NamedTuple):
    """A heading, a note, tables, and plots as caption and SVG."""

    title: str
    note: str
    tables: Sequence[Table]
    plots: Sequence[tuple[str, bytes]] = ()


def write_report(out: pathlib.Path, title: str, sources: Sequence[Source]) -> None:
    """Make the folder of a report, whole or not at all.

    Raises:
      UserError: the folder cannot be written, or a run's evaluation or the plot of an analysis cannot be read.
    """
    environment = jinja2.Environment(loader=jinja2.PackageLoader("bert_flow_tf.report", ""), autoescape=True)
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    shown = [section for section in _sections(sources) if section.tables]
    page = environment.get_template("page.html.j2").render(title=title, sections=shown)
    with new_folder(out) as folder:
        (folder / PAGE_FILE).write_text(page, encoding="utf-8")


def _sections(sources: Sequence[Source]) -> Iterator[Section]:
    rows = score_rows(sources)
    claims = verdict([one.result for one in sources if isinstance(one.result, Verification)], rows)
    yield Section("Verdict", "", [verdict_table(claims)] if claims else [])
    yield Section("Scores", _COMPARED, [tables.rows_table(rows)] if rows else [], list(_score_plots(rows)))
    calibrations = [(one.label, one.result) for one in sources if isinstance(one.result, Calibrations)]
    titled = [dataclasses.replace(tables.calibration_table(one), title=label) for label, one in calibrations]
    drawn = [(label, _calibration_plot(one)) for label, one in calibrations]
    yield Section("Calibrations", "Table 5 is of BERT-base, mean of the last layer. k is chosen on dev.", titled, drawn)
    for kind, (heading, plot, note) in _ANALYSES.items():
        analyses = [one for one in sources if isinstance(one.result, kind)]
        titled = [dataclasses.replace(tables.ANALYSIS_TABLES[kind](one.result), title=one.label) for one in analyses]
        drawn = [(one.label, read_file(one.path.with_name(f"{plot}.svg"), "an analysis' plot")) for one in analyses]
        yield Section(heading, note, titled, drawn)
    runs = [one.path.parent for one in sources if isinstance(one.result, TrainingResults)]
    yield Section("Sources", "", [tables.sources_table(sources)], plots.curve_plots(runs))


def _score_plots(rows: Sequence[ScoreRow]) -> Iterator[tuple[str, bytes]]:
    """Yield cosines of the first row of each task with both sides of a flow, and rows over several seeds."""
    shown: set[tuple] = set()
    seeds: dict[tuple, dict[str, Sequence[float]]] = {}
    for row in rows:
        if row.agreement and row.baseline and row.baseline.agreement and (row.task, row.split) not in shown:
            shown.add((row.task, row.split))
            yield f"{row.name}: {row.task}, {row.split}", plots.cosines_plot(row.baseline.agreement, row.agreement)
        if len(row.values_x100) > 1:
            seeds.setdefault(row.place, {})[row.name] = row.values_x100
    for (task, split, metric, *_), values in seeds.items():
        yield f"Seeds: {task}, {split}", plots.dots_plot(values, f"{METRIC_NAMES[metric]} × 100")


def _calibration_plot(result: Calibrations) -> bytes:
    runs = {row.method: (*row.by_seed,) or (row,) for row in result.rows}
    scores = {method: [100 * (getattr(one, result.metric) or 0) for one in ones] for method, ones in runs.items()}
    return plots.dots_plot(scores, f"{METRIC_NAMES[result.metric]} × 100")
