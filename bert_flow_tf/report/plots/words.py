"""The paper's pictures of words: edit distance and word frequency."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.report.lexical import FrequencyTable, LexicalPairs
from bert_flow_tf.report.plots import style
from bert_flow_tf.report.plots.plane import directions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The paper marks the pairs with at most so many edits.
_NEAR = 4


def distances(pairs: LexicalPairs, *, axes: "Sequence[Axes] | None" = None) -> "Figure":
    """Draw similarity against edit distance, a panel per similarity (Figure 2)."""
    places = style.several_axes(axes, len(pairs.similarities))
    width = np.random.default_rng(0).uniform(-0.3, 0.3, len(pairs.distances))
    near = pairs.distances <= _NEAR
    for place, (name, similarity) in zip(places, pairs.similarities.items(), strict=True):
        for i, (rows, said) in enumerate(
            ((~near, f"more than {_NEAR} edits"), (near, f"at most {_NEAR} edits"))
        ):
            look = style.look(i)
            place.scatter(
                similarity[rows],
                (pairs.distances + width)[rows],
                s=8,
                alpha=0.45,
                linewidths=0,
                color=look.colour,
                marker=look.marker,
                label=style.entry(said),
                rasterized=True,
            )
        rho = 100 * pairs.correlation(name)
        style.label(
            place, f"{name}: Spearman {rho:.1f} (x100)", "similarity", "edit distance (words)"
        )
    style.legend(places[-1], markerscale=2)
    return places[0].figure  # type: ignore[return-value]


def frequency(table: FrequencyTable, *, ax: "Axes | None" = None) -> "Figure":
    """Draw norms and distances of word embeddings by frequency (Table 1)."""
    axes = style.own_axes(ax)
    shown = [name for name in table.measures if "dot" not in name]
    for i, name in enumerate(shown):
        look = style.look(i)
        axes.plot(
            table.names,
            table.measures[name],
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            label=style.entry(name),
        )
    style.label(
        axes,
        "Rare words lie far out, and apart" if table.is_as_in_paper else "Words by frequency",
        "rank of the word by frequency",
        "ℓ2 norm or distance",
    )
    style.legend(axes)
    return axes.figure  # type: ignore[return-value]


def word_plane(embeddings: np.ndarray, ranks: np.ndarray, *, ax: "Axes | None" = None) -> "Figure":
    """Draw word embeddings [V, D] coloured by rank (Figure 1)."""
    axes = style.own_axes(ax)
    known = ranks > 0
    points = directions(embeddings[known] - embeddings[known].mean(axis=0))
    # Frequent words are few, so they are drawn large, and last.
    order = np.argsort(-ranks[known], kind="stable")
    height = np.log10(ranks[known][order])
    drawn = axes.scatter(
        points[order, 0],
        points[order, 1],
        c=height,
        cmap=f"{style.SCALE}_r",
        s=4 + 30 * (1 - height / height.max()) ** 2,
        alpha=0.6,
        linewidths=0,
        rasterized=True,
    )
    style.colorbar(axes, drawn, "rank (log10; 0 is the most frequent)")
    style.label(
        axes,
        "Word embeddings by frequency",
        "first principal direction",
        "second principal direction",
    )
    return axes.figure  # type: ignore[return-value]
