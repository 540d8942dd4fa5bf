"""The options `--plot` and `--panels`, and the file that they write."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bert_flow_tf.commands.command import Decorator, option
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.common.errors import ArgumentError

if TYPE_CHECKING:
    from bert_flow_tf.report.plots.style import Picture


class Plot(NamedTuple):
    """The file of `--plot`, and the names of `--panels`, if given."""

    path: pathlib.Path
    names: list[str] | None

    def write(self, pictures: "Mapping[str, Sequence[Picture]]") -> None:
        """Write the wanted pictures as one figure, and say where.

        Raises:
          ArgumentError: there are no data for a picture of `--panels`, or for any.
        """
        missing = set(self.names or ()) - {name for name, found in pictures.items() if found}
        if missing or not any(pictures.values()):
            found = f"found {min(missing)}" if missing else "found none"
            drawn = ", ".join(name for name, one in pictures.items() if one) or "other data"
            raise ArgumentError(f"panels: {found}, which these data cannot show, expected {drawn}")
        wanted = [
            picture
            for name, found in pictures.items()
            if self.names is None or name in self.names
            for picture in found
        ]
        from bert_flow_tf.report.plots.style import panels, save

        save(panels(wanted), self.path)
        say(f"picture written: {self.path}", err=True)


PLOT = option("--plot", metavar="FILE", help="Picture: .png, .svg or .pdf")


def panels_option(*names: str) -> Decorator:
    """Return a decorator that adds `--panels`, some of the command's pictures."""
    return option(
        "--panels",
        callback=name_list(names),
        metavar="LIST",
        needs=("plot",),
        help=f"With --plot: some of {', '.join(names)}.",
    )


def locked_plot(path: str | None, panels: list[str] | None, *, overwrite: bool) -> Plot | None:
    """Lock and return the picture to write; None without `--plot`."""
    if path is None:
        return None
    # Most commands are called without a picture.
    from bert_flow_tf.report.plots.style import check_ending, check_matplotlib

    check_ending(path)
    check_matplotlib()
    return Plot(locked_file(path, overwrite=overwrite, flag="plot"), panels)
