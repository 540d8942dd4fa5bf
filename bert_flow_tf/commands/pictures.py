"""The options `--plot` and `--panels`, and the file that they write."""

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from bert_flow_tf.commands.options import name_list
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.report.plots.style import Panel, check_ending, check_matplotlib, panels, save

Function = Callable[..., Any]


class Plot(NamedTuple):
    """The file of `--plot`, and the names of `--panels`, if given."""

    path: pathlib.Path
    names: list[str] | None

    def write(self, pictures: Mapping[str, Sequence[Panel]]) -> None:
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
            panel
            for name, found in pictures.items()
            if self.names is None or name in self.names
            for panel in found
        ]
        save(panels(wanted), self.path)
        say(f"picture written: {self.path}", err=True)


def plot_options(*names: str) -> Callable[[Function], Function]:
    """Return a decorator that passes `plot`, a `Plot` or None.

    Args:
      *names: the command's pictures. The command has the option `--overwrite`, too.
    """
    panels_option = click.option(
        "--panels",
        "panel_names",
        callback=name_list(names),
        metavar="LIST",
        help=f"With --plot: some of {', '.join(names)}.",
    )
    plot_option = click.option(
        "--plot", "plot_file", metavar="FILE", help="Picture: .png, .svg or .pdf"
    )

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def with_plot(**values: Any) -> Any:
            path = values.pop("plot_file")
            chosen = values.pop("panel_names")
            plot = None
            if path is not None:
                check_ending(path)
                check_matplotlib()
                found = locked_file(path, overwrite=values["overwrite"], flag="plot")
                plot = Plot(found, chosen)
            elif chosen:
                raise click.UsageError("--panels: missing --plot, which it needs")
            return function(plot=plot, **values)

        return plot_option(panels_option(with_plot))

    return decorate
