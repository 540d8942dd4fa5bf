"""Cosines of random pairs of sentences."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.calibration.history import History
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.report.plots import style
from bert_flow_tf.tasks.scores import IsotropyResults
from bert_flow_tf.vectors.isotropy import COSINE_BINS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def cosines_of(
    result: History | Comparison | IsotropyResults,
) -> tuple[dict[str, list[int]], dict[str, float]]:
    """Return a result's counts of cosines and its thresholds, by side."""
    if isinstance(result, History):
        change, pair = result.change, result.thresholds
        counts = {} if change is None else {"before": change.before, "after": change.after}
        found = {name: one.cosine_counts for name, one in counts.items()}
        sides = dict(zip(("before", "after"), pair or (), strict=False))
        return found, {name: one.cosine for name, one in sides.items()}
    if isinstance(result, Comparison):
        histories = {row.method: row.history for row in result.rows}
        return (
            {name: one.change.after.cosine_counts for name, one in histories.items() if one.change},
            {name: one.thresholds[1].cosine for name, one in histories.items() if one.thresholds},
        )
    return {name: one.cosine_counts for name, one in result.measures.items()}, {}


def cosines(
    counts: Mapping[str, list[int]],
    thresholds: Mapping[str, float] | None = None,
    *,
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw how often random pairs have each cosine, a curve per side.

    Args:
      counts: by side, pairs in each of `vectors.isotropy.COSINE_BINS`, see `cosines_of`.
      thresholds: by side, the cosine that one in 1,000 pairs exceeds.
    """
    drawn = {name: np.asarray(one, float) for name, one in counts.items() if sum(one)}
    if not drawn:
        raise ArgumentError("panels: found no cosines of random pairs, expected held-out sentences")
    axes = style.own_axes(ax)
    for i, (name, one) in enumerate(drawn.items()):
        look = style.look(i)
        share = 100 * one / one.sum()
        axes.stairs(
            share,
            COSINE_BINS,
            color=look.colour,
            linestyle=look.line,
            linewidth=1.6,
            label=style.entry(name),
        )
        if len(drawn) <= 2:
            axes.stairs(share, COSINE_BINS, fill=True, alpha=0.18, color=look.colour)
        if thresholds and name in thresholds:
            axes.axvline(thresholds[name], color=look.colour, linestyle=look.line, linewidth=0.9)
            _mark(axes, thresholds[name], i, look.colour)
    inside = np.flatnonzero(np.sum([*drawn.values()], axis=0))
    low, high = COSINE_BINS[max(inside[0] - 4, 0)], COSINE_BINS[min(inside[-1] + 5, 200)]
    axes.set_xlim(low, high)
    # The legend and the thresholds stand above the curves.
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    style.label(
        axes,
        "Cosines of random pairs of sentences",
        "cosine of a random pair",
        "pairs (% per 0.01)",
    )
    style.legend(axes, loc="upper left")
    return axes.figure  # type: ignore[return-value]


def _mark(axes: "Axes", cosine: float, i: int, colour: str) -> None:
    # Text beside a mark at the right edge would leave the picture.
    is_right = cosine > 0.6
    axes.annotate(
        f"1 in 1,000: {cosine:.2f}",
        (cosine, 0.97 - 0.09 * i),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if is_right else 3, 0),
        ha="right" if is_right else "left",
        textcoords="offset points",
        fontsize=7,
        color=colour,
        va="top",
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.5},
    )
