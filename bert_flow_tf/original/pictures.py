"""A report's pictures: scores as bars, and losses of runs."""

import functools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bert_flow_tf import plots
from bert_flow_tf.original.page_pictures import comparable, score_series, shortly_named
from bert_flow_tf.original.rows import ScoreRow
from bert_flow_tf.training.losses import Losses, find_losses
from bert_flow_tf.training.records import is_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def report_pictures(
    rows: Sequence[ScoreRow], runs: Iterable[str | os.PathLike]
) -> dict[str, list[plots.Panel]]:
    """Return the panels of each picture by name.

    Args:
      rows: of the table of scores; each task, split and metric has a panel.
      runs: files and folders of results; those that are runs, or hold some, show their losses.
    """
    bars = [
        plots.Panel(functools.partial(_draw_bars, title, some)) for title, some in comparable(rows)
    ]
    trainings: dict[str, dict[str, Losses]] = {}
    for name, losses in _losses_of(map(pathlib.Path, runs)):
        trainings.setdefault(losses.unit, {})[name] = losses
    curves = [plots.Panel(functools.partial(_draw_losses, one)) for one in trainings.values()]
    return {"bars": bars, "losses": curves}


def _losses_of(paths: Iterable[pathlib.Path]) -> Iterator[tuple[str, Losses]]:
    """Yield the losses of the runs among paths, and directly in them."""
    for path in paths:
        if not path.is_dir():
            continue
        folders = [path] if is_run(path) else sorted(one for one in path.iterdir() if one.is_dir())
        for folder in folders:
            found = find_losses(folder)
            if found is not None:
                yield str(folder), found


def _draw_bars(title: str, rows: Sequence[ScoreRow], axes: "Sequence[Axes]") -> None:
    scores = score_series(rows)
    has_seeds = any(len(row.values_x100) > 1 for row in rows)
    spread = "deviation over seeds" if has_seeds else ""
    plots.bars(scores, title=title, unit="score (x100)", spread=spread, ax=axes[0])


def _draw_losses(trainings: Mapping[str, Losses], axes: "Sequence[Axes]") -> None:
    plots.losses(shortly_named(dict(trainings)), ax=axes[0])
