"""A report's page: tables and plots in one HTML file."""

import base64
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2

from bert_flow_tf.evaluation import plots
from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.reading import read_text
from bert_flow_tf.results import tables
from bert_flow_tf.results.records import Agreement, Calibrations, IsotropyResults, Lexical, Verification, Words
from bert_flow_tf.results.rows import ScoreRow, score_rows
from bert_flow_tf.results.sources import Source
from bert_flow_tf.results.table import METRIC_NAMES
from bert_flow_tf.results.verdict import verdict, verdict_table
from bert_flow_tf.runs.record import TrainingResults

PAGE_FILE = "report.html"
REPORT_FOLDER = FolderKind("a report", PAGE_FILE, (PAGE_FILE,))
# A heading, the plot's file ("" to draw one) and a note introduce each kind of result.
_ANALYSES = {
    Calibrations: ("Calibrations", "", "Table 5: BERT-base, mean of the last layer. k is chosen on dev."),
    Lexical: ("Lexical similarity", "lexical", "Spearman × 100 of each similarity. Edit distance counts words."),
    Words: ("Word frequency", "words", "Word embeddings by frequency rank; Table 1 counts words in other text."),
    IsotropyResults: ("Isotropy", "spectrum", "Standard normal: the same number of random draws."),
}
_COMPARED = (
    "Paper: the row of Tables 2 to 4 (for a flow on train only, the original's README) with the same encoder, "
    "training and protocol; TF1 code: the mean of the original's runs on the same weights, pooling and flow. wmean: "
    "mean over the sets of STS-12 to STS-16, weighted by their pairs as in the paper; mean: plain mean; all: all pairs."
)

_COLOURS = (plots.BLUE, plots.VERMILION, plots.GREEN, plots.GREY)
_LOSSES = {"flow_loss": "Loss of the flow, bits per dimension", "supervised_loss": "Supervised loss"}


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
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    shown = [section for section in _sections(sources) if section["tables"]]
    page = environment.get_template("page.html.j2").render(title=title, sections=shown)
    with new_folder(out) as folder:
        (folder / PAGE_FILE).write_text(page, encoding="utf-8")


def _sections(sources: Sequence[Source]) -> Iterator[dict[str, Any]]:
    rows = score_rows(sources)
    claims = verdict([one.result for one in sources if isinstance(one.result, Verification)], rows)
    yield {"title": "Verdict", "tables": [verdict_table(claims)] if claims else []}
    scores = [tables.rows_table(rows)] if rows else []
    yield {"title": "Scores", "note": _COMPARED, "tables": scores, "plots": list(_score_plots(rows))}
    for kind, (heading, plot, note) in _ANALYSES.items():
        found = [one for one in sources if isinstance(one.result, kind)]
        made = [(one.label, tables.TABLES[kind](one.result)) for one in found]
        titled = [dataclasses.replace(one, title=f"{label}: {one.title}".rstrip(": ")) for label, one in made]
        drawn = [(one.label, _plot(one, plot)) for one in found]
        yield {"title": heading, "note": note, "tables": titled, "plots": drawn}
    runs = [one.path.parent for one in sources if isinstance(one.result, TrainingResults)]
    yield {"title": "Sources", "tables": [tables.sources_table(sources)], "plots": curve_plots(runs)}


def _score_plots(rows: Sequence[ScoreRow]) -> Iterator[tuple[str, bytes]]:
    shown: set[tuple] = set()
    seeds: dict[tuple, dict[str, Sequence[float]]] = {}
    for row in rows:
        if row.agreement and row.baseline and row.baseline.agreement and (row.task, row.split) not in shown:
            shown.add((row.task, row.split))
            yield f"{row.name}: {row.task}, {row.split}", cosines_plot(row.baseline.agreement, row.agreement)
        if len(row.values_x100) > 1:
            seeds.setdefault(row.key, {})[row.name] = row.values_x100
    for (task, split, metric, *_), values in seeds.items():
        yield f"Seeds: {task}, {split}", dots_plot(values, f"{METRIC_NAMES[metric]} × 100")


def _plot(source: Source, name: str) -> bytes:
    """Return a result's plot: draw calibrations, read the file of others."""
    result = source.result
    if not isinstance(result, Calibrations):
        return read_text(source.path.with_name(f"{name}.svg"), "an analysis' plot").encode()
    runs = {row.method: (*row.by_seed,) or (row,) for row in result.rows}
    scores = {method: [100 * (getattr(one, result.metric) or 0) for one in ones] for method, ones in runs.items()}
    return dots_plot(scores, f"{METRIC_NAMES[result.metric]} × 100")


def cosines_plot(before: Agreement, after: Agreement) -> bytes:
    """Draw cosines over gold scores, and their histograms."""
    sides = {"without flow": before, "with flow": after}
    with plots.styled_figure(12.4, 3.6, columns=3) as (figure, panels):
        for panel, colour, (words, side) in zip(panels, _COLOURS, sides.items(), strict=False):
            panel.scatter(side.gold, side.similarities, s=12, color=colour, alpha=0.5, linewidths=0, rasterized=True)
            panel.set(xlabel="Gold score", ylabel="Cosine", title=words)
            edges = [2 * i / len(side.counts) - 1 for i in range(len(side.counts) + 1)]
            panels[2].stairs(side.counts, edges, linewidth=1.6, color=colour, label=words)
        panels[1].sharey(panels[0])
        panels[2].set(xlabel="Cosine", ylabel="Pairs", title="All pairs")
        panels[2].legend()
    return plots.svg_document(figure)


def dots_plot(rows: Mapping[str, Sequence[float]], title: str) -> bytes:
    """Draw each row's scores as dots and their mean as a line."""
    with plots.styled_figure(7.2, 1.1 + 0.34 * len(rows)) as (figure, (panel,)):
        for height, scores in enumerate(rows.values()):
            panel.scatter(scores, [height] * len(scores), s=30, color=plots.BLUE, alpha=0.8, linewidths=0)
            panel.plot([sum(scores) / len(scores)] * 2, [height - 0.3, height + 0.3], color=plots.BLUE, linewidth=1.6)
        panel.set_yticks(range(len(rows)), list(rows))
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.set_xlabel(title)
    return plots.svg_document(figure)


def curve_plots(runs: Sequence[pathlib.Path]) -> list[tuple[str, bytes]]:
    """Draw each loss of all runs; return captions and SVGs.

    Colours and styles distinguish up to twelve runs.
    """
    curves, drawn = {str(run): read_curves(run) for run in runs}, []
    for loss, words in _LOSSES.items():
        found = {run: one[loss] for run, one in curves.items() if loss in one}
        with plots.styled_figure(7.2, 3.4 + 0.2 * len(found)) as (figure, (panel,)):
            for i, (run, points) in enumerate(found.items()):
                x, y = zip(*points, strict=True)
                panel.plot(x, y, color=_COLOURS[i % 4], linestyle=("-", "--", ":")[i // 4 % 3], label=run)
            panel.set(xlabel="Step", ylabel=words)
            if found:
                plots.legend_below(figure, panel, columns=1)
                drawn.append((words, plots.svg_document(figure)))
    return drawn


def read_curves(run_dir: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """Return (step, loss) by tag; ignore events after a damaged one."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(run_dir), size_guidance={"tensors": 1000})
    events.Reload()
    found = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"] if tag in _LOSSES}
    return {tag: [(one.step, float(make_ndarray(one.tensor_proto))) for one in points] for tag, points in found.items()}
