"""A report's own plots: calibrations side by side, and the scores of several seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_flow_tf.evaluation import plots
from bert_flow_tf.results.collect import seed_groups
from bert_flow_tf.results.table import METRIC_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROW_HEIGHT = 0.34


def own_plots(report: dict) -> dict[str, bytes]:
    """The SVG documents of the plots that are drawn from a report's figures, by the names in its `figures`."""
    figures = {f"seeds-{number}": seeds_figure(rows) for number, rows in enumerate(seed_groups(report), start=1)}
    for number, record in enumerate(report["calibrations"], start=1):
        figures[f"calibration-{number}"] = calibration_figure(record)
    return {name: plots.svg_document(figure) for name, figure in figures.items()}


def calibration_figure(record: dict) -> "Figure":
    """Scores on the test split of one of a report's `calibrations`: a row each, a dot per seed of the flow."""
    rows = [
        (one["method"] if one["k"] is None else f"{one['method']} (k={one['k']})", one["values_x100"], ())
        for one in record["rows"]
    ]
    none = next((one["mean_x100"] for one in record["rows"] if one["method"] == "none"), None)
    return _dots(rows, none, "not calibrated", record)


def seeds_figure(scores: Sequence[dict]) -> "Figure":
    """Scores of several seeds, a row of dots per embedding, beside the original's and the baseline.

    `scores` are some of a report's, of one metric, task and split.
    """
    rows = []
    for one in scores:
        embedding = one["pooling"] + (" + flow" if one["flow"] else "")
        originals = one["original"]["values_x100"] if one["original"] else ()
        rows.append((f"{embedding}\n{one['name']}", one["this_run"]["values_x100"], originals))
    baselines = {one["baseline"]["mean_x100"] for one in scores if one["baseline"]}
    return _dots(rows, baselines.pop() if len(baselines) == 1 else None, "without flow", scores[0])


def _dots(rows: Sequence[tuple], reference: float | None, reference_label: str, scored: dict) -> "Figure":
    """Rows of dots with their means, and a vertical line for a reference; `scored` has `metric`, `task`, `split`.

    A row is a label, scores, and those of the original.
    """
    lines = sum(label.count("\n") + 1 for label, _, _ in rows)
    with plots.styled_figure(7.2, 1.3 + _ROW_HEIGHT * lines) as (figure, (panel,)):
        for place, (_, scores, originals) in enumerate(rows):
            if originals:
                diamonds: dict[str, Any] = {"marker": "D", "s": 34, "facecolors": "none", "edgecolors": plots.GREY}
                panel.scatter(originals, [place] * len(originals), **diamonds, label="TF1 code")
            panel.scatter(scores, [place] * len(scores), s=30, color=plots.BLUE, alpha=0.8, linewidths=0, label="here")
            if len(scores) > 1:
                mean = sum(scores) / len(scores)
                panel.plot([mean] * 2, [place - 0.3, place + 0.3], color=plots.BLUE, linewidth=1.6, label="mean")
        if reference is not None:
            line: dict[str, Any] = {"color": plots.VERMILION, "linewidth": 1.2, "linestyle": plots.DASHED, "zorder": 0}
            panel.axvline(reference, **line, label=reference_label)
        panel.set_yticks(range(len(rows)), [label for label, _, _ in rows])
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.grid(axis="y", visible=False)
        panel.margins(x=0.06)
        panel.set_xlabel(f"{METRIC_NAMES[scored['metric']]} × 100 on {scored['task']}, {scored['split']}")
        if len(panel.get_legend_handles_labels()[1]) > 1:
            plots.legend_below(figure, panel)
    return figure
