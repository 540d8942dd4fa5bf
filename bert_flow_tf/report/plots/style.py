"""The look of every picture, and figures of several of them.

A picture is a function that draws on given axes, or on a figure of its own. matplotlib loads when
the first is drawn; no function touches the state of `pyplot`.
"""

import dataclasses
import io
import math
import os
import pathlib
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bert_flow_tf.common.atomic import new_file
from bert_flow_tf.common.errors import ArgumentError, check_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
_DPI = 150
_WIDTH = 4.6
_HEIGHT = 3.9
# A longer title takes several lines.
_TITLE_WIDTH = 56


class Look(NamedTuple):
    """The colour, line style, marker and hatching of one series."""

    colour: str
    line: str
    marker: str
    hatch: str


# Neighbours differ in lightness, because pictures are also printed in grey.
LOOKS = (
    Look("#1f4e79", "-", "o", ""),
    Look("#e69f00", "--", "s", "//"),
    Look("#009e73", "-.", "^", ".."),
    Look("#000000", ":", "D", "xx"),
    Look("#56b4e9", (0, (5, 1)), "v", "\\\\"),  # type: ignore[arg-type]
    Look("#b33c00", (0, (1, 1)), "P", "++"),  # type: ignore[arg-type]
    Look("#f2a6c8", (0, (3, 1, 1, 1)), "X", "--"),  # type: ignore[arg-type]
    Look("#6f6f6f", (0, (7, 3)), "*", "oo"),  # type: ignore[arg-type]
)
MARK = "#7f7f7f"
# This colour map is lighter for larger values, so it can be read in grey.
SCALE = "cividis"


def look(i: int) -> Look:
    """Return the look of series i."""
    return LOOKS[i % len(LOOKS)]


@dataclasses.dataclass(frozen=True)
class Panel:
    """A picture of a figure.

    Attributes:
      draw: a function that draws it on `width` axes.
      width: how many axes it takes, beside one another.
    """

    draw: "Callable[[Sequence[Axes]], object]"
    width: int = 1


def panels(pictures: Sequence[Panel]) -> "Figure":
    """Draw several pictures as panels of one figure.

    Two pictures of one panel stand beside each other; a wider one has a row of its own.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    single = [one for one in pictures if one.width == 1]
    rows = [single[i : i + 2] for i in range(0, len(single), 2)]
    rows += [[one] for one in pictures if one.width > 1]
    columns = max(sum(one.width for one in row) for row in rows)
    figure = Figure(figsize=(_WIDTH * columns, _HEIGHT * len(rows)), layout="constrained")
    # With so many columns, each row can fill the width.
    common = math.lcm(*(sum(one.width for one in row) for row in rows))
    grid = figure.add_gridspec(len(rows), common)
    for i, row in enumerate(rows):
        step = common // sum(one.width for one in row)
        places = iter(range(0, common, step))
        for one in row:
            starts = [next(places) for _ in range(one.width)]
            one.draw([figure.add_subplot(grid[i, start : start + step]) for start in starts])
    return figure


def own_axes(axes: "Axes | None") -> "Axes":
    """Return the given axes, or those of a new figure."""
    return several_axes(None if axes is None else [axes], 1)[0]


def several_axes(axes: "Sequence[Axes] | None", count: int) -> "Sequence[Axes]":
    """Return the given axes, or so many of a new figure."""
    if axes is not None:
        if len(axes) != count:
            raise ArgumentError(f"axes: found {len(axes)}, expected {count}, one per side")
        return axes
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH * count, _HEIGHT), layout="constrained")
    return list(figure.subplots(1, count, squeeze=False)[0])


def label(axes: "Axes", title: str, x: str, y: str) -> None:
    """Set the title and axis labels, and hide needless spines."""
    axes.set_title(textwrap.fill(title, _TITLE_WIDTH), fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)


def legend(axes: "Axes", **options: object) -> None:
    """Add a legend if there are names."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=True, framealpha=0.8, edgecolor="none", **options)


def check_matplotlib() -> None:
    """Raise `ArgumentError` if matplotlib is not installed."""
    check_installed("matplotlib", "plots", "plot", ArgumentError)


def check_ending(path: str | os.PathLike) -> str:
    """Return a picture's ending; raise `ArgumentError` for another."""
    ending = pathlib.Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise ArgumentError(f"plot: found {os.fspath(path)}, expected a name with {_endings()}")
    return ending


def _endings() -> str:
    return f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


def to_svg(figure: "Figure") -> str:
    """Return a figure as SVG, for a page."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "bert_flow_tf"}):
        figure.savefig(text, format="svg", dpi=_DPI, metadata={"Date": None})
    # A page must not contain the XML declaration.
    return text.getvalue()[text.getvalue().index("<svg") :]


def save(figure: "Figure", path: str | os.PathLike) -> None:
    """Write a figure in the format of the file's ending."""
    ending = check_ending(path)
    # Without these, two files of one figure would differ.
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
    from matplotlib import rc_context

    with new_file(path) as new, rc_context({"svg.hashsalt": "bert_flow_tf"}):
        figure.savefig(new, format=ending[1:], dpi=_DPI, metadata=dates[ending])
