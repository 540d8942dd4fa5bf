"""Cosines of labelled pairs against their gold scores."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.report.plots import style
from bert_flow_tf.vectors.metrics import Cuts, spearman

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 10


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """Gold scores of pairs, and their cosines by side.

    Attributes:
      gold: [n].
      cosines: [n] by side, such as "without flow" and "with flow".
      task: whose pairs they are, for the titles.
    """

    gold: np.ndarray
    cosines: dict[str, np.ndarray]
    task: str = ""

    @property
    def has_labels(self) -> bool:
        """True for labels 0 and 1."""
        return set(np.unique(self.gold)) == {0, 1}


def gold(pairs: ScoredPairs, *, axes: "Sequence[Axes] | None" = None) -> "Figure":
    """Draw cosine against gold score, a panel per side.

    The title's correlation is that of all pairs together.
    """
    places = style.several_axes(axes, len(pairs.cosines))
    # Many pairs have the same score: spread them a little.
    width = np.ptp(pairs.gold) / 60
    spread = np.random.default_rng(0).uniform(-width, width, len(pairs.gold))
    for i, (place, (side, found)) in enumerate(zip(places, pairs.cosines.items(), strict=True)):
        look = style.look(i)
        place.scatter(
            pairs.gold + spread,
            found,
            s=8,
            alpha=0.35,
            linewidths=0,
            color=look.colour,
            marker=look.marker,
            rasterized=True,
        )
        middles, means = _medians(pairs.gold, found)
        place.plot(middles, means, color="black", linewidth=1.5, label="median")
        score = 100 * spearman(found, pairs.gold)
        words = f"{side}: Spearman {score:.1f} (x100) of {len(found):,} pairs"
        style.label(place, _titled(pairs.task, words), "gold score", "cosine")
        style.legend(place, loc="lower right")
    return places[0].figure  # type: ignore[return-value]


def reliability(pairs: ScoredPairs, *, axes: "Sequence[Axes] | None" = None) -> "Figure":
    """Draw the share of equal pairs by cosine, precision and recall.

    The dotted line is the cosine of the best F1. Raises `ArgumentError` for graded scores.
    """
    if not pairs.has_labels:
        raise ArgumentError("panels: found reliability with graded scores, expected labels 0 and 1")
    places = style.several_axes(axes, len(pairs.cosines))
    for place, (side, found) in zip(places, pairs.cosines.items(), strict=True):
        edges = np.linspace(found.min(), found.max(), _BINS + 1)
        rows = np.clip(np.digitize(found, edges) - 1, 0, _BINS - 1)
        counts = np.bincount(rows, minlength=_BINS)
        equal = np.bincount(rows, weights=pairs.gold, minlength=_BINS)
        middles = (edges[1:] + edges[:-1]) / 2
        place.bar(
            middles,
            equal / np.maximum(counts, 1),
            width=0.92 * np.diff(edges),
            color="#d9d9d9",
            edgecolor=style.MARK,
            label="label 1, share by bin",
        )
        for x, count in zip(middles, counts, strict=True):
            place.annotate(f"{count:,}", (x, 0.01), ha="center", fontsize=6, color="#404040")
        cuts = Cuts.of(found, pairs.gold)
        curves = {"precision": cuts.precision, "recall": cuts.recall}
        for i, (name, values) in enumerate(curves.items()):
            look = style.look(i)
            place.plot(
                cuts.values,
                values,
                color=look.colour,
                linestyle=look.line,
                label=name,
                linewidth=1.6,
            )
        best = int(np.argmax(cuts.f1))
        cosine = cuts.values[best]
        place.axvline(cosine, color="black", linestyle=":", linewidth=1.4)
        place.set_ylim(0, 1.04)
        words = f"{side}: best F1 {100 * cuts.f1[best]:.1f} at cosine {cosine:.2f}"
        style.label(place, _titled(pairs.task, words), "cosine, or cut at it", "share of pairs")
        style.legend(place, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return places[0].figure  # type: ignore[return-value]


def _titled(task: str, words: str) -> str:
    return f"{task}, {words}" if task else words


def _medians(gold_scores: np.ndarray, found: np.ndarray) -> tuple[list[float], list[float]]:
    """Return groups' mean gold scores and median cosines."""
    edges = np.unique(np.quantile(gold_scores, np.linspace(0, 1, 9)))
    rows = np.clip(np.searchsorted(edges, gold_scores, side="right") - 1, 0, len(edges) - 2)
    used = np.unique(rows)
    return (
        [float(gold_scores[rows == one].mean()) for one in used],
        [float(np.median(found[rows == one])) for one in used],
    )
