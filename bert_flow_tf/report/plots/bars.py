"""Scores side by side, with their spread."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.report.plots import style
from bert_flow_tf.vectors.metrics import METRIC_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Score(NamedTuple):
    """A score times 100, and its spread."""

    value: float
    below: float = 0.0
    above: float = 0.0

    @classmethod
    def of_seeds(cls, values: "list[float] | tuple[float, ...]") -> "Score":
        """Return the mean over seeds, ± the deviation over n - 1."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), spread, spread)


def scores_of_comparison(comparison: Comparison) -> dict[str, dict[str, Score]]:
    """Return the deciding measure by method, with the interval of its change."""
    found: dict[str, Score] = {}
    for row in comparison.rows:
        judged = row.history.judgement
        if judged is None:
            continue
        one = judged.measures[comparison.metric]
        decided = judged.decided
        found[row.method] = Score(
            100 * one.after,
            100 * (decided.change - decided.low),
            100 * (decided.high - decided.change),
        )
    return {METRIC_NAMES[comparison.metric]: found} if found else {}


def bars(
    scores: Mapping[str, Mapping[str, Score]],
    *,
    title: str = "",
    unit: str = "score (x100)",
    spread: str = "",
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw scores as bars, whose whiskers are their spread.

    Args:
      scores: by series, such as a task or a pooling, then by name.
      title: by default, the only series.
      unit: the name of the scores' axis.
      spread: what the whiskers are, for the title.
    """
    names = list(dict.fromkeys(name for one in scores.values() for name in one))
    if not names:
        raise ArgumentError("panels: found no scores for bars, expected labelled pairs or tasks")
    axes = style.own_axes(ax)
    height = 0.8 / len(scores)
    for i, (series, one) in enumerate(scores.items()):
        look = style.look(i)
        places = [names.index(name) + (i - (len(scores) - 1) / 2) * height for name in one]
        values = [score.value for score in one.values()]
        errors = [[score.below for score in one.values()], [score.above for score in one.values()]]
        axes.barh(
            places,
            values,
            0.92 * height,
            xerr=errors if np.any(errors) else None,
            color=look.colour,
            alpha=0.75,
            hatch=look.hatch,
            edgecolor="white",
            label=style.entry(series),
            error_kw={"ecolor": "black", "capsize": 2.5, "linewidth": 1},
        )
        for place, score in zip(places, one.values(), strict=True):
            x = max(score.value, 0) + max(score.above, 0)
            axes.annotate(
                f"{score.value:.1f}",
                (x, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
    style.ticks(axes, names)
    # One name alone would get bars as high as the picture.
    middle = (len(names) - 1) / 2
    half = max(len(names), 2) / 2
    axes.set_ylim(middle + half, middle - half)
    axes.margins(x=0.12)
    title = title or (next(iter(scores)) if len(scores) == 1 else "Scores")
    style.label(axes, f"{title} (whiskers: {spread})" if spread else title, unit, "")
    if len(scores) > 1:
        style.legend(axes, loc="upper left", bbox_to_anchor=(1, 1))
    return axes.figure  # type: ignore[return-value]
