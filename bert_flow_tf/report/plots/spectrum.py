"""Shares of the variance by direction."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.report.plots import style
from bert_flow_tf.vectors.isotropy import Isotropy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def spectrum(
    sides: Mapping[str, Isotropy],
    *,
    title: str = "Variance by direction",
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw each principal direction's share of the variance, a line per side."""
    axes = style.own_axes(ax)
    for i, (name, measures) in enumerate(sides.items()):
        look = style.look(i)
        variance = np.square(measures.centred_spectrum)
        # Directions without variance have no place on a logarithmic axis.
        share = 100 * variance[variance > 1e-12 * variance.sum()] / variance.sum()
        axes.plot(
            np.arange(1, len(share) + 1),
            share,
            color=look.colour,
            linestyle=look.line,
            label=style.entry(f"{name}: {measures.participation_ratio:.0f} directions"),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    style.label(axes, title, "principal direction, by rank", "share of the variance (%)")
    style.legend(axes, loc="lower left")
    return axes.figure  # type: ignore[return-value]
