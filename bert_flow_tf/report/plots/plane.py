"""Embeddings in the plane of their first two singular directions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.report.plots import style
from bert_flow_tf.vectors.similarities import check_directions, mean_cosine, normalized
from glow.number_types import is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMES = 8
_MOST_ROWS = 4000
# Drawn in turns, so that the last name does not hide the others.
_PARTS = 8


def plane(
    sides: Mapping[str, np.ndarray],
    colours: Sequence[object] | None = None,
    *,
    name: str = "",
    axes: "Sequence[Axes] | None" = None,
) -> "Figure":
    """Draw unit embeddings' first two singular directions, a panel per side.

    A narrow cone is a cloud far from the centre; directions that fill the space surround it.

    Args:
      sides: embeddings [n, D] by side, such as "before" and "after".
      colours: a number or a text per row, to colour by; the most frequent 7 of many texts.
      name: what `colours` are, for the legend.
    """
    places = style.several_axes(axes, len(sides))
    for place, (side, embeddings) in zip(places, sides.items(), strict=True):
        check_directions(embeddings, f"plane, {side}")
        unit = normalized(embeddings)
        angles = np.linspace(0, 2 * np.pi, 200)
        place.plot(np.cos(angles), np.sin(angles), color=style.MARK, linewidth=0.8)
        _points(place, directions(unit), colours, name)
        style.label(
            place,
            f"{side}: mean cosine {round(mean_cosine(unit), 2) + 0:.2f}",
            "first singular direction",
            "second singular direction",
        )
        place.set_aspect("equal")
    return places[0].figure  # type: ignore[return-value]


def directions(unit: np.ndarray) -> np.ndarray:
    """Return rows' coordinates along their first two singular directions, [n, 2]."""
    # So many rows show the directions of all.
    some = unit
    if len(unit) > _MOST_ROWS:
        some = np.random.default_rng(0).permutation(unit)[:_MOST_ROWS]
    _, vectors = np.linalg.eigh((some.T @ some).astype(np.float64))
    points = unit @ vectors[:, :-3:-1].astype(np.float32)
    # A singular vector's sign is arbitrary; without this rule another machine might mirror it.
    return points * np.where(points.mean(axis=0) < 0, -1.0, 1.0)


def _points(axes: "Axes", points: np.ndarray, colours: Sequence[object] | None, name: str) -> None:
    options: dict[str, Any] = {"s": 5, "alpha": 0.4, "linewidths": 0, "rasterized": True}
    if colours is None:
        axes.scatter(*points.T, color=style.look(0).colour, **options)
        return
    if len(colours) != len(points):
        raise ArgumentError(f"colours: found {len(colours)}, expected {len(points)}, one per row")
    if all(map(is_number, colours)):
        drawn = axes.scatter(
            points[:, 0], points[:, 1], c=np.array(colours, float), cmap=style.SCALE, **options
        )
        style.colorbar(axes, drawn, name, extend="both")
        return
    texts = np.array([str(one) for one in colours])
    names, counts = np.unique(texts, return_counts=True)
    shown = list(names[np.argsort(-counts, kind="stable")])
    if len(shown) > _MOST_NAMES:
        shown = shown[: _MOST_NAMES - 1]
        others = ~np.isin(texts, shown)
        axes.scatter(*points[others].T, color="#cccccc", label="others", **options)
    for part in range(_PARTS):
        for i, one in enumerate(shown):
            look = style.look(i)
            rows = np.flatnonzero(texts == one)[part::_PARTS]
            label = style.entry(one) if part == 0 else None
            axes.scatter(
                *points[rows].T, color=look.colour, marker=look.marker, label=label, **options
            )
    style.legend(axes, title=name, markerscale=2, loc="upper right")
