"""A report's own plots: cosines before and after a flow, learning curves, calibrations, scores of several seeds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scipy import stats

from bert_flow_tf.evaluation import plots
from bert_flow_tf.results.collect import SIDES, curve_groups, seed_groups
from bert_flow_tf.results.table import METRIC_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROW_HEIGHT = 0.34
# Inches: as wide as a phone shows without scrolling.
_PANEL = 4.4, 3.4
_LEGEND_ROW = 0.2
_COLOURS = {"before": plots.BLUE, "after": plots.VERMILION}
_LOSS_LABELS = {"flow_loss": "Loss, bits per dimension", "supervised_loss": "Supervised loss"}


def own_plots(report: dict) -> dict[str, bytes]:
    """The SVG documents of the plots that are drawn from a report's figures, by the names in its `figures`."""
    figures = {f"seeds-{number}": seeds_figure(rows) for number, rows in enumerate(seed_groups(report), start=1)}
    for number, record in enumerate(report["calibrations"], start=1):
        figures[f"calibration-{number}"] = calibration_figure(record)
    for number, record in enumerate(report["similarities"], start=1):
        figures |= {f"{side}-{number}": scatter_figure(record, side) for side in SIDES}
        figures[f"histogram-{number}"] = histogram_figure(record)
    for number, (loss, records) in enumerate(curve_groups(report), start=1):
        figures[f"curve-{number}"] = curve_figure(loss, records)
    return {name: plots.svg_document(figure) for name, figure in figures.items()}


def scatter_figure(record: dict, side: str) -> "Figure":
    """Cosines over gold scores of one of a report's `similarities`; a `side` of `SIDES`, on the scale of both."""
    both = [value for one in SIDES for value in record[one]["similarities"]]
    with plots.styled_figure(*_PANEL) as (figure, (panel,)):
        dots: dict[str, Any] = {"s": 12, "color": _COLOURS[side], "alpha": 0.5, "linewidths": 0, "rasterized": True}
        panel.scatter(record[side]["gold"], record[side]["similarities"], **dots)
        panel.set_ylim(min(both) - 0.05, max(both) + 0.05)
        panel.set_xlabel("Gold score")
        panel.set_ylabel("Cosine")
        panel.set_title(SIDES[side].capitalize())
    return figure


def histogram_figure(record: dict) -> "Figure":
    """How many pairs have which cosine, before the flow and after it, of one of a report's `similarities`."""
    with plots.styled_figure(*_PANEL) as (figure, (panel,)):
        for side, words in SIDES.items():
            counts = record[side]["counts"]
            edges = [2 * i / len(counts) - 1 for i in range(len(counts) + 1)]
            panel.stairs(counts, edges, fill=True, alpha=0.25, color=_COLOURS[side])
            line = "-" if side == "before" else plots.DASHED
            panel.stairs(counts, edges, linewidth=1.6, color=_COLOURS[side], linestyle=line, label=words)
        panel.set_xlim(-1, 1)
        panel.set_xticks([-1, -0.5, 0, 0.5, 1])
        panel.set_xlabel("Cosine")
        panel.set_ylabel("Pairs")
        plots.legend_below(figure, panel)
    return figure


def curve_figure(loss: str, records: Sequence[dict]) -> "Figure":
    """A loss over the steps of some of a report's `trainings`, six at most."""
    colours = (plots.BLUE, plots.VERMILION, plots.GREEN)
    styles = [(colour, line) for line in ("-", plots.DASHED) for colour in colours]
    with plots.styled_figure(_PANEL[0], _PANEL[1] + _LEGEND_ROW * len(records)) as (figure, (panel,)):
        for record, (colour, style) in zip(records, styles, strict=False):
            steps, losses = record["curve"]["steps"], record["curve"]["losses"][loss]
            line: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.6, "label": record["source"]}
            panel.plot(steps, losses, **line, marker="." if len(steps) == 1 else "")
        panel.set_xlabel("Step")
        panel.set_ylabel(_LOSS_LABELS[loss])
        plots.legend_below(figure, panel, columns=1)
    return figure


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
                # Of scores that are all the same there is none.
                if max(scores) > min(scores):
                    ends = stats.ttest_1samp(scores, mean).confidence_interval()
                    panel.plot(ends, [place] * 2, color=plots.BLUE, linewidth=0.8, label="95% interval of the mean")
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
