"""The analyses as figures, and figures as PNG and SVG.

Every figure is a `matplotlib.figure.Figure` of its own, without pyplot's state, so it needs no display and none is kept
open. The colours are those of Okabe and Ito, which the colour-blind tell apart.
"""

import contextlib
import io
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_flow_tf.evaluation.isotropy import Isotropy
from bert_flow_tf.evaluation.lexical import CLOSE_DISTANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

PNG_DPI = 150
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
DASHED = (0, (4, 2))
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    # Without a salt of its own every SVG would hold other random names.
    "svg.hashsalt": "bert-flow",
}


def lexical_figure(
    distances: np.ndarray,
    similarities: Mapping[str, np.ndarray],
    correlations: Mapping[str, float],
    *,
    title: str | None = None,
) -> "Figure":
    """Figure 2 of Li et al. 2020: a panel per similarity, edit distance over it, close pairs highlighted.

    Args:
      distances: int [n] of words; points are spread by up to 0.35 around them, the same way in every panel.
      similarities: dict of the axis' label -> [n]; the first is gold, the others are cosines.
      correlations: dict of the same -> Spearman's correlation x100 with edit distance, printed above each panel.
    """
    distances = np.asarray(distances)
    spread = distances + np.random.default_rng(0).uniform(-0.35, 0.35, len(distances))
    close = distances <= CLOSE_DISTANCE
    groups = (
        (~close, BLUE, f"edit distance > {CLOSE_DISTANCE}"),
        (close, VERMILION, f"edit distance ≤ {CLOSE_DISTANCE}"),
    )
    points: dict[str, Any] = {"s": 13, "alpha": 0.45, "linewidths": 0, "rasterized": True}
    columns = len(similarities)
    with styled_figure(4.0 * columns + 0.4, 4.2, columns=columns, sharey=True, title=title) as (figure, panels):
        for panel, (name, values) in zip(panels, similarities.items(), strict=True):
            values = np.asarray(values)
            for chosen, colour, words in groups:
                panel.scatter(
                    values[chosen], spread[chosen], label=f"{words} ({chosen.sum():,} pairs)", color=colour, **points
                )
            panel.set_xlabel(name)
            panel.set_title(f"Spearman × 100: {correlations[name]:.2f}".replace("-", "−"))
        for panel in panels[2:]:
            panel.sharex(panels[1])
        panels[0].set_ylabel("Edit distance (words)")
        panels[0].set_ylim(bottom=-0.8)
        handles: Any = legend_below(figure, panels[0]).legend_handles
        for handle in handles:
            handle.set(alpha=1, sizes=[36])
    return figure


def word_frequency_figure(points: np.ndarray, ranks: np.ndarray, *, title: str | None = None) -> "Figure":
    """Figure 1 of Li et al. 2020: word embeddings in two dimensions, coloured by frequency rank.

    `points` [n, 2] are those of `words.svd_projection`, `ranks` int [n], from 1.
    """
    import matplotlib
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import StrMethodFormatter

    points, ranks = np.asarray(points), np.asarray(ranks)
    # The frequent words are few: drawn last, or the rare ones would hide them.
    order = np.argsort(-ranks, kind="stable")
    # Without the lightest yellows, which hardly show on white.
    colours = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0, 0.93, 256)))
    with styled_figure(6.6, 5.2, title=title) as (figure, (panel,)):
        x, y = points[order].T
        drawn = panel.scatter(
            x,
            y,
            c=ranks[order],
            # A rank of 1 alone still needs a range of colours.
            norm=LogNorm(1, max(int(ranks.max()), 10)),
            cmap=colours,
            # Large for the frequent ones, so that a hundred among ten thousand are seen.
            s=np.interp(np.log10(ranks[order]), [0, 2, 4], [34, 20, 4]),
            alpha=0.75,
            linewidths=0,
            rasterized=True,
        )
        bar: Any = figure.colorbar(drawn, ax=panel, pad=0.02, aspect=30)
        bar.set_label("Frequency rank (1 is the most frequent word)")
        bar.solids.set_alpha(1)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        # The first ranks on top: frequent is high.
        bar.ax.invert_yaxis()
        panel.set_xlabel("First singular direction")
        panel.set_ylabel("Second singular direction")
        panel.set_aspect("equal", adjustable="datalim")
    return figure


def spectrum_figure(measures: Mapping[str, Isotropy], reference: Isotropy, *, title: str | None = None) -> "Figure":
    """Singular spectra, uncentred and centred: mean square along each direction, relative to the mean over directions.

    `measures` are those without the flow, and with it, by name; `reference` is an isotropic sample's.
    """
    with styled_figure(9.6, 4.4, columns=2, sharey=True, title=title) as (figure, panels):
        titles = {"spectrum": "As they are", "centred_spectrum": "Mean subtracted"}
        lowest = []
        for panel, (spectrum, words) in zip(panels, titles.items(), strict=True):
            lowest.append(_draw_spectra(panel, measures, reference, spectrum))
            panel.set_title(words)
        _label_spectra(panels[0], min(lowest))
        legend_below(figure, panels[0])
    return figure


def effect_figure(
    measures: Mapping[str, Isotropy],
    reference: Isotropy,
    scores: Mapping[str, Mapping[str, float | None]],
    *,
    title: str | None = None,
) -> "Figure":
    """The paper's effect: spectra of sentence embeddings, and Spearman's correlations of calibrated ones.

    Args:
      measures: dict of name -> isotropy: before masked language modelling, after it, and with the flow.
      reference: that of an isotropic sample.
      scores: dict of embeddings -> calibration -> Spearman's correlation x100, None where there is none; two rows each
        of before, after, and the paper.
    """
    with styled_figure(11.6, 4.8, columns=2, title=title) as (figure, (left, right)):
        _label_spectra(left, _draw_spectra(left, measures, reference, "spectrum"))
        left.set_title("Singular spectrum of sentence embeddings")
        left.legend(loc="lower left", fontsize=9)
        styles = [(colour, line) for colour in (BLUE, VERMILION, GREY) for line in ("-", DASHED)]
        for (name, row), (colour, line) in zip(scores.items(), styles, strict=True):
            points = [(i, score) for i, score in enumerate(row.values()) if score is not None]
            right.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker="o", markersize=5, label=name)
        names = list(next(iter(scores.values())))
        right.set_xticks(range(len(names)), names)
        right.set_title("Spearman × 100 of the cosine, test split")
        # Below the axes: the lines leave no corner free.
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=3, fontsize=9)
    return figure


def _draw_spectra(panel: "Axes", measures: Mapping[str, Isotropy], reference: Isotropy, spectrum: str) -> float:
    """The smallest of what it draws: up to three spectra and a standard normal's, each the field `spectrum`."""
    from matplotlib.ticker import StrMethodFormatter

    lowest = []
    for (name, measure), colour in zip(measures.items(), (BLUE, VERMILION, GREEN), strict=False):
        power = _relative_power(getattr(measure, spectrum))
        # Directions that nothing varies along have no place on a logarithmic axis.
        power = power[power > 1e-9 * power[0]]
        lowest.append(power[-1])
        panel.plot(np.arange(1, len(power) + 1), power, color=colour, linewidth=2, label=name)
    power = _relative_power(getattr(reference, spectrum))
    line: dict[str, Any] = {"color": GREY, "linewidth": 1.4, "linestyle": DASHED}
    panel.plot(np.arange(1, len(power) + 1), power, **line, label="standard normal, same number of draws")
    panel.set(xscale="log", yscale="log")
    panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.set_xlabel("Singular direction")
    return min(lowest)


def _label_spectra(panel: "Axes", lowest: float) -> None:
    # One direction far below the rest would flatten all that is to be seen.
    panel.set_ylim(bottom=max(lowest / 1.5, 1e-4))
    panel.set_ylabel("Mean square, relative to the mean direction")


@contextlib.contextmanager
def styled_figure(
    width: float, height: float, *, columns: int = 1, sharey: bool = False, title: str | None = None
) -> Iterator[tuple["Figure", "list[Axes]"]]:
    """An empty figure, `width` by `height` inches, and its row of panels, to draw in within the block."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(_STYLE):
        # Room at the edges, in inches, for what hangs over an axis' end.
        figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))
        FigureCanvasAgg(figure)
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=12)
        yield figure, list(figure.subplots(1, columns, sharey=sharey, squeeze=False)[0])


def legend_below(figure: "Figure", panel: "Axes", *, columns: int | None = None) -> "Legend":
    """The legend of a panel, each label once, below the figure: in one row, or in so many columns."""
    handles, labels = panel.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns or len(once), "handletextpad": 0.6}
    return figure.legend(once.values(), once.keys(), **place)


def svg_document(figure: "Figure") -> bytes:
    """The figure as SVG; the same bytes for the same figure."""
    import matplotlib

    with io.BytesIO() as buffer, matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", dpi=PNG_DPI, metadata={"Date": None, "Creator": None})
        return buffer.getvalue()


def write_figure(figure: "Figure", folder: pathlib.Path, name: str) -> None:
    """Writes the figure into the folder as `name`.png, 150 dpi, and `name`.svg."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure.savefig(folder / f"{name}.png", dpi=PNG_DPI, metadata={"Software": None})
    (folder / f"{name}.svg").write_bytes(svg_document(figure))


def _relative_power(singular_values: Sequence[float]) -> np.ndarray:
    power = np.asarray(singular_values, np.float64) ** 2
    return power / power.mean()
