"""The analyses as figures, and figures as PNG and SVG.

Every figure is a `matplotlib.figure.Figure` of its own, without pyplot's state, so it needs no display and none is kept
open. The colours are those of Okabe and Ito, which the colour-blind tell apart.
"""

import io
import pathlib
import re

import numpy as np

from bert_flow_tf.evaluation.lexical import CLOSE_DISTANCE

PNG_DPI = 150
_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "#767676"
_LINE_COLOURS = (_BLUE, _VERMILION, "#009E73", "#CC79A7", "#E69F00")
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


def lexical_figure(distances, similarities, correlations, *, title=None):
    """Figure 2 of Li et al. 2020: a panel for each similarity, edit distance over it, close pairs highlighted.

    Edit distances are whole numbers: points are spread by up to 0.35 around them, the same way in every panel.

    Args:
      distances: int [n] of words, see `lexical.edit_distances`.
      similarities: dict of name, which becomes the axis' label, -> [n]; the first is gold, the others are cosines.
      correlations: dict of name -> Spearman's correlation x100 with edit distance, to print above each panel.
      title: of the figure, or None.
    """
    distances = np.asarray(distances)
    spread = distances + np.random.default_rng(0).uniform(-0.35, 0.35, len(distances))
    close = distances <= CLOSE_DISTANCE
    with _style():
        figure, panels = _figure(4.0 * len(similarities) + 0.4, 4.2, columns=len(similarities), sharey=True)
        for panel, (name, values) in zip(panels, similarities.items(), strict=True):
            values = np.asarray(values)
            for chosen, colour, words in (
                (~close, _BLUE, f"edit distance > {CLOSE_DISTANCE}"),
                (close, _VERMILION, f"edit distance ≤ {CLOSE_DISTANCE}"),
            ):
                panel.scatter(
                    values[chosen],
                    spread[chosen],
                    s=13,
                    color=colour,
                    alpha=0.45,
                    linewidths=0,
                    rasterized=True,
                    label=f"{words} ({chosen.sum():,} pairs)",
                )
            panel.set_xlabel(name)
            panel.set_title(f"Spearman × 100: {correlations[name]:.2f}".replace("-", "−"))
        for panel in panels[2:]:
            panel.sharex(panels[1])
        panels[0].set_ylabel("Edit distance (words)")
        panels[0].set_ylim(bottom=-0.8)
        _legend_below(figure, panels[0], markers=True)
        _titled(figure, title)
    return figure


def word_frequency_figure(points, ranks, *, title=None):
    """Figure 1 of Li et al. 2020: word embeddings in two dimensions, coloured by frequency rank.

    Args:
      points: [n, 2], see `word_frequency.svd_projection`.
      ranks: int [n], from 1.
      title: of the figure, or None.
    """
    import matplotlib
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import StrMethodFormatter

    points, ranks = np.asarray(points), np.asarray(ranks)
    # The frequent words are few: drawn last, or the rare ones would hide them.
    order = np.argsort(-ranks, kind="stable")
    # Without the lightest yellows, which hardly show on white.
    colours = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0, 0.93, 256)))
    with _style():
        figure, (panel,) = _figure(6.6, 5.2)
        drawn = panel.scatter(
            *points[order].T,
            c=ranks[order],
            # A rank of 1 alone still needs a range of colours.
            norm=LogNorm(1, max(int(ranks.max()), 10)),
            cmap=colours,
            # Large for the frequent ones, so that a hundred of ten thousand are seen.
            s=np.interp(np.log10(ranks[order]), [0, 2, 4], [34, 20, 4]),
            alpha=0.75,
            linewidths=0,
            rasterized=True,
        )
        bar = figure.colorbar(drawn, ax=panel, pad=0.02, aspect=30)
        bar.set_label("Frequency rank (1 is the most frequent word)")
        bar.solids.set_alpha(1)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        # The first ranks on top: frequent is high.
        bar.ax.invert_yaxis()
        panel.set_xlabel("First singular direction")
        panel.set_ylabel("Second singular direction")
        panel.set_aspect("equal", adjustable="datalim")
        _titled(figure, title)
    return figure


def spectrum_figure(measures, reference=None, *, title=None):
    """Singular spectra, uncentred and centred: mean square along each direction, relative to the mean over directions.

    Args:
      measures: dict of name -> `isotropy.Isotropy`.
      reference: `isotropy.Isotropy` of an isotropic sample to compare with, or None.
      title: of the figure, or None.
    """
    from matplotlib.ticker import StrMethodFormatter

    with _style():
        figure, panels = _figure(9.6, 4.4, columns=2, sharey=True)
        lowest = []
        for panel, spectrum, words in (
            (panels[0], "spectrum", "As they are"),
            (panels[1], "centred_spectrum", "Mean subtracted"),
        ):
            for (name, measure), colour in zip(measures.items(), _LINE_COLOURS, strict=False):
                power = _relative_power(getattr(measure, spectrum))
                # Directions that nothing varies along have no place on a logarithmic axis.
                power = power[power > 1e-9 * power[0]]
                lowest.append(power[-1])
                panel.plot(np.arange(1, len(power) + 1), power, color=colour, linewidth=2, label=name)
            if reference is not None:
                power = _relative_power(getattr(reference, spectrum))
                panel.plot(
                    np.arange(1, len(power) + 1),
                    power,
                    color=_GREY,
                    linewidth=1.4,
                    linestyle=(0, (4, 2)),
                    label="standard normal, as many draws",
                )
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.set_title(words)
            panel.set_xlabel("Singular direction")
        # One direction far below the rest would flatten all that is to be seen.
        panels[0].set_ylim(bottom=max(min(lowest) / 1.5, 1e-4))
        panels[0].set_ylabel("Mean square, relative to the mean direction")
        _legend_below(figure, panels[0])
        _titled(figure, title)
    return figure


def svg_text(figure):
    """The figure as an SVG element, `<svg …>…</svg>`, to put into a page; the same text for the same figure."""
    with io.StringIO() as buffer, _style():
        figure.savefig(buffer, format="svg", dpi=PNG_DPI, metadata={"Date": None, "Creator": None})
        text = buffer.getvalue()
    return text[re.search(r"<svg\b", text).start() :]


def write_figure(figure, folder, name):
    """Paths of `name`.png, 150 dpi, and `name`.svg, which it writes into the folder."""
    folder = pathlib.Path(folder)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    with _style():
        figure.savefig(png, dpi=PNG_DPI, metadata={"Software": None})
        figure.savefig(svg, dpi=PNG_DPI, metadata={"Date": None, "Creator": None})
    return png, svg


def _style():
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def _figure(width, height, *, columns=1, sharey=False):
    """A figure of so many inches and its row of panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    # Room at the edges, in inches, for what hangs over an axis' end.
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.06)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, sharey=sharey, squeeze=False)[0]


def _legend_below(figure, panel, markers=False):
    handles, labels = panel.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), handletextpad=0.6)
    if markers:
        for handle in legend.legend_handles:
            handle.set(alpha=1, sizes=[36])


def _titled(figure, title):
    if title:
        figure.suptitle(title, x=0.012, ha="left", fontsize=12)


def _relative_power(singular_values):
    power = np.asarray(singular_values, np.float64) ** 2
    return power / power.mean()
