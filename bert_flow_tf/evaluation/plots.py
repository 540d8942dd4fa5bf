"""Figures of the analyses, and their files.

No display is needed. The colours are Okabe and Ito's, which colour-blind readers can distinguish.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.evaluation.isotropy import Isotropy
from bert_flow_tf.evaluation.lexical import CLOSE_DISTANCE, Correlations
from bert_flow_tf.evaluation.words import svd_projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PNG_DPI = 150
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
# Without a fixed salt, the ids in an SVG would differ in each process.
_STYLE = {"axes.grid": True, "grid.color": "#E6E6E6", "axes.axisbelow": True, "svg.hashsalt": "bert-flow"}
_STYLE |= {"axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def lexical_figure(
    distances: np.ndarray, similarities: Mapping[str, np.ndarray], correlations: Correlations, *, title: str = ""
) -> "Figure":
    """Draw edit distance over each similarity (Li et al. 2020, Figure 2).

    Points are moved vertically so that fewer overlap.
    """
    spread = distances + np.random.default_rng(0).uniform(-0.35, 0.35, len(distances))
    close = np.asarray(distances) <= CLOSE_DISTANCE
    groups = ((~close, BLUE, "edit distance >"), (close, VERMILION, "edit distance ≤"))
    columns = len(similarities)
    with styled_figure(4.0 * columns + 0.4, 4.2, columns=columns, title=title) as (figure, panels):
        for panel, (name, values) in zip(panels, similarities.items(), strict=True):
            for chosen, colour, words in groups:
                label = f"{words} {CLOSE_DISTANCE} ({chosen.sum():,} pairs)"
                x, y = np.asarray(values)[chosen], spread[chosen]
                panel.scatter(x, y, s=13, alpha=0.45, linewidths=0, rasterized=True, color=colour, label=label)
            panel.set_xlabel(name)
            panel.set_title(f"Spearman × 100: {correlations.rows[name]['edit distance']:.2f}".replace("-", "−"))
        for panel in panels[2:]:
            panel.sharex(panels[1])
        panels[0].set(ylabel="Edit distance (words)", ylim=(-0.8, None))
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(groups))
    return figure


def word_frequency_figure(points: np.ndarray, ranks: np.ndarray, *, title: str = "") -> "Figure":
    """Draw words coloured by frequency rank (Li et al. 2020, Figure 1)."""
    from matplotlib.colors import LogNorm

    # Draw the few frequent words last and large, because the rare ones would hide them.
    order = np.argsort(-ranks, kind="stable")
    ranks, (x, y) = ranks[order], points[order].T
    sizes, norm = np.interp(np.log10(ranks), [0, 2, 4], [34, 20, 4]), LogNorm(1, max(int(ranks.max()), 10))
    with styled_figure(6.6, 5.2, title=title) as (figure, (panel,)):
        drawn = panel.scatter(x, y, c=ranks, s=sizes, norm=norm, cmap="viridis", linewidths=0, rasterized=True)
        bar = figure.colorbar(drawn, ax=panel, pad=0.02, aspect=30)
        bar.set_label("Frequency rank (1 is the most frequent word)")
        bar.ax.yaxis.set_major_formatter("{x:,.0f}")
        bar.ax.invert_yaxis()
        panel.set(xlabel="First singular direction", ylabel="Second singular direction")
        panel.set_aspect("equal", adjustable="datalim")
    return figure


def spectrum_figure(measures: Mapping[str, Isotropy], reference: Isotropy, *, title: str = "") -> "Figure":
    """Draw singular spectra, uncentred and centred, beside an isotropic sample's."""
    spectra = {**measures, "standard normal, same number of draws": reference}
    colours = (*(BLUE, VERMILION)[: len(measures)], GREY)
    with styled_figure(9.6, 4.4, columns=2, title=title) as (figure, panels):
        titles = {"spectrum": "As they are", "centred_spectrum": "Mean subtracted"}
        for panel, (spectrum, words) in zip(panels, titles.items(), strict=True):
            for (name, measure), colour in zip(spectra.items(), colours, strict=True):
                power = np.square(getattr(measure, spectrum))
                power = power / power.mean()
                style = (0, (4, 2)) if measure is reference else "-"
                panel.plot(np.arange(1, len(power) + 1), power, color=colour, linestyle=style, label=name)
            panel.set(xscale="log", yscale="log", xlabel="Singular direction", title=words)
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_formatter("{x:g}")
        # Directions far below the rest would flatten the others.
        panels[0].set(ylabel="Mean square, relative to the mean direction", ylim=(1e-4, None))
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(spectra))
    return figure


def cone_figure(sides: Mapping[str, np.ndarray]) -> "Figure":
    """Draw embeddings' first two singular directions, a panel per name.

    A narrow cone is a cloud far from the centre; directions that fill the space surround the centre.
    """
    angles = np.linspace(0, 2 * np.pi, 200)
    with styled_figure(4.2 * len(sides), 4.5, columns=len(sides)) as (figure, panels):
        for panel, (name, embeddings) in zip(panels, sides.items(), strict=True):
            unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
            x, y = svd_projection(unit).T
            panel.plot(np.cos(angles), np.sin(angles), color=GREY, linewidth=0.8)
            panel.scatter(x, y, s=5, alpha=0.35, linewidths=0, rasterized=True, color=BLUE)
            panel.set(xlabel="First singular direction", title=name, aspect="equal")
        panels[0].set_ylabel("Second singular direction")
    return figure


@contextlib.contextmanager
def styled_figure(
    width: float, height: float, *, columns: int = 1, title: str = ""
) -> Iterator[tuple["Figure", "list[Axes]"]]:
    """Yield an empty figure, in inches, and its row of panels."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        if title:
            figure.suptitle(title, x=0.012, ha="left", fontsize=12)
        yield figure, list(figure.subplots(1, columns, sharey=True, squeeze=False)[0])


def write_figure(figure: "Figure", folder: pathlib.Path, name: str) -> None:
    """Write `name`.png, 150 dpi, and `name`.svg; equal figures give equal bytes."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure.savefig(folder / f"{name}.png", dpi=PNG_DPI, metadata={"Software": None})
        figure.savefig(folder / f"{name}.svg", dpi=PNG_DPI, metadata={"Date": None, "Creator": None})
