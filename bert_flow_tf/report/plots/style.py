"""The look of pictures, their texts, and figures of several pictures.

A picture is a function that draws on given axes, or on a figure of its own. matplotlib loads when
the first is drawn; no function touches the state of `pyplot`.

Names of files, columns and sentences come into a picture by `label`, `legend`, `entry` and `ticks`
alone: matplotlib would read a dollar as mathematics, and leave out a name that begins with an
underscore.
"""

import collections
import functools
import io
import math
import os
import pathlib
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_flow_tf.common.atomic import new_file
from bert_flow_tf.common.errors import ArgumentError, check_installed, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure
    from matplotlib.text import Text

ENDINGS = (".png", ".svg", ".pdf")
_DPI = 150
_WIDTH = 4.6
_HEIGHT = 3.9
# A longer title takes several lines.
_TITLE_WIDTH = 56
# A longer name would leave no width for its bar.
_LONGEST = 48
_NAME_WIDTH = 24
# matplotlib drops a series whose label begins with an underscore.
_HIDES = "\N{WORD JOINER}"
# matplotlib's last font has boxes for all characters.
_BOXES = "Last Resort"


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


class Picture(NamedTuple):
    """A picture of a figure.

    It is a function of this package, bound to what it draws.

    Attributes:
      function: takes `ax`, or `axes` if there are sides.
      sides: number of axes beside one another; None for a picture on one, `ax`.
    """

    function: "Callable[..., Figure]"
    sides: int | None = None

    @property
    def width(self) -> int:
        return self.sides or 1

    def draw(self, axes: "Sequence[Axes]") -> None:
        if self.sides is None:
            self.function(ax=axes[0])
        else:
            self.function(axes=axes)


def panels(pictures: Sequence[Picture]) -> "Figure":
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
    text = textwrap.fill(one_line(title), _TITLE_WIDTH)
    _plain([axes.set_title(text, fontsize=10, loc="left"), axes.set_xlabel(x), axes.set_ylabel(y)])
    axes.spines[["top", "right"]].set_visible(False)


def entry(name: str) -> str:
    """Return a name as the `label` of a series, for `legend`."""
    text = one_line(name)
    return f"{_HIDES}{text}" if text.startswith("_") else text


def legend(axes: "Axes", *, title: str = "", **options: Any) -> None:
    """Add a legend if there are names."""
    if not axes.get_legend_handles_labels()[0]:
        return
    made = axes.legend(
        fontsize=8, frameon=True, framealpha=0.8, edgecolor="none", title=title, **options
    )
    for text in made.get_texts():
        text.set_text(text.get_text().removeprefix(_HIDES))
    _plain([*made.get_texts(), made.get_title()])


def ticks(axes: "Axes", names: Sequence[str]) -> None:
    """Write a name beside each whole number of the vertical axis.

    Long names are shortened.
    """
    shown = [textwrap.fill(name, _NAME_WIDTH) for name in shortened(names)]
    axes.set_yticks(range(len(names)), shown, fontsize=8)
    _plain(axes.get_yticklabels())


def shortened(names: Sequence[str], longest: int = _LONGEST) -> list[str]:
    """Shorten names as a picture needs it; different names stay different.

    The folders that all have are left out; of long ones, what all begin and end with, then the
    middle.
    """
    folders = [one_line(name).split("/") for name in names]
    common = _number_of_equal([one[:-1] for one in folders])
    names = ["/".join(one[common:]) for one in folders]
    if len(set(names)) > 1 and max(map(len, names)) > longest:
        parts = [re.findall(r"[^/_\s,]+|[/_\s,]", name) for name in names]
        start = _number_of_equal(parts)
        end = _number_of_equal([one[start:][::-1] for one in parts])
        names = [
            "".join([*["…"][: start > 0], *one[start : len(one) - end], *["…"][: end > 0]])
            for one in parts
        ]
    short = [
        name if len(name) <= longest else f"{name[: longest // 2]}…{name[1 - longest // 2 :]}"
        for name in names
    ]
    counts = collections.Counter(short)
    known = dict.fromkeys(zip(short, names, strict=True))
    if len(known) == len(counts):
        return short
    # They differ in their middle alone.
    numbers = {name: i for i, (_, name) in enumerate(known, start=1)}
    return [f"{numbers[name]}: {one}" for one, name in zip(short, names, strict=True)]


def _number_of_equal(parts: Sequence[Sequence[str]]) -> int:
    """Return how many parts all lists begin with."""
    count = 0
    for one in zip(*parts, strict=False):
        if len(set(one)) > 1:
            break
        count += 1
    return count


def _plain(texts: "Iterable[Text]") -> None:
    """Show texts as they are, in fonts that have their characters."""
    for text in texts:
        text.set_parse_math(False)
        if fallbacks := fallback_fonts(frozenset(text.get_text())):
            text.set_fontfamily([*text.get_fontfamily(), *fallbacks])


@functools.cache
def fallback_fonts(characters: frozenset[str]) -> tuple[str, ...]:
    """Return the installed fonts that have what the default one lacks.

    A character that no font has stays a box.
    """
    from matplotlib import font_manager

    missing = {ord(one) for one in characters if not one.isspace()}
    missing -= _characters_of(font_manager.findfont(font_manager.FontProperties()), missing)
    found: list[str] = []
    while missing:
        covered = {
            font.name: _characters_of(font.fname, missing)
            for font in font_manager.fontManager.ttflist
            if not font.name.startswith(_BOXES)
        }
        # Among fonts that cover as many, take one without serifs.
        best = max(covered, key=lambda name: (len(covered[name]), "Sans" in name), default="")
        if not covered.get(best):
            break
        found.append(best)
        missing -= covered[best]
    return tuple(found)


def _characters_of(path: str, wanted: set[int]) -> set[int]:
    """Return the code points that a font has."""
    from matplotlib import font_manager

    font = font_manager.get_font(path)
    return {one for one in wanted if font.get_char_index(one)}


def colorbar(axes: "Axes", drawn: "PathCollection", name: str, **options: Any) -> None:
    """Add the scale of a picture's colours."""
    assert axes.figure is not None, "axes belong to a figure"
    made = axes.figure.colorbar(drawn, ax=axes, shrink=0.8, **options)
    made.set_label(name)
    _plain([made.ax.yaxis.label])


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
