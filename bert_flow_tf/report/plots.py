"""Plots of a report as SVG: cosines before and after a flow, scores as dots, and learning curves."""

import pathlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.evaluation import plots
from bert_flow_tf.results.records import Agreement

_COLOURS = (plots.BLUE, plots.VERMILION, plots.GREEN, plots.GREY)
# Tag of TensorBoard -> words.
_LOSSES = {"flow_loss": "Loss of the flow, bits per dimension", "supervised_loss": "Supervised loss"}


def cosines_plot(before: Agreement, after: Agreement) -> bytes:
    """Draw cosines over gold scores without the flow and with it, and the histogram of both."""
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
    """Draw a row of dots for each name: scores of every seed, and their mean as a line."""
    with plots.styled_figure(7.2, 1.1 + 0.34 * len(rows)) as (figure, (panel,)):
        for place, scores in enumerate(rows.values()):
            panel.scatter(scores, [place] * len(scores), s=30, color=plots.BLUE, alpha=0.8, linewidths=0)
            panel.plot([sum(scores) / len(scores)] * 2, [place - 0.3, place + 0.3], color=plots.BLUE, linewidth=1.6)
        panel.set_yticks(range(len(rows)), list(rows))
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.set_xlabel(title)
    return plots.svg_document(figure)


def curve_plots(runs: Sequence[pathlib.Path]) -> list[tuple[str, bytes]]:
    """Draw each loss of runs over their steps, with a caption."""
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
    """Return (step, loss) by TensorBoard's tag, of the events that a run wrote; a damaged event ends its file."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(run_dir), size_guidance={"tensors": 1000})
    events.Reload()
    found = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"] if tag in _LOSSES}
    return {tag: [(one.step, float(make_ndarray(one.tensor_proto))) for one in points] for tag, points in found.items()}
