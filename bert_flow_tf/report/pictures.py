"""A report's pictures, for `--plot` and for its page."""

import itertools
import os
import pathlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.common.losses import Losses
from bert_flow_tf.report import plots
from bert_flow_tf.report.collected import Source
from bert_flow_tf.report.rows import ScoreRow
from bert_flow_tf.tasks.scores import IsotropyResults
from bert_flow_tf.training.run_losses import find_losses
from bert_flow_tf.training.run_records import is_run
from bert_flow_tf.vectors.isotropy import Isotropy
from bert_flow_tf.vectors.metrics import METRIC_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More bars in one picture would be too thin for their names.
_MOST_ROWS = 12
# A longer name of a row takes several lines.
_NAME_WIDTH = 24
_Scores = Mapping[str, Mapping[str, plots.Score]]


def report_pictures(
    rows: Sequence[ScoreRow], sources: Sequence[Source], runs: Iterable[str | os.PathLike]
) -> dict[str, list[plots.Panel]]:
    """Return the panels of each picture by name.

    Args:
      rows: of the table of scores; each task, split and metric has a panel.
      sources: results; each comparison and each record of isotropy has a panel.
      runs: files and folders of results; those that are runs, or hold some, show their losses.
    """
    trainings: dict[str, dict[str, Losses]] = {}
    for name, losses in _losses_of(map(pathlib.Path, runs)):
        trainings.setdefault(losses.unit, {})[name] = losses
    methods, spectra = [], []
    for name, source in zip(_short([str(one.path) for one in sources]), sources, strict=True):
        if isinstance(source.result, Comparison):
            # Without labelled pairs, a comparison has no scores.
            if scores := plots.scores_of_comparison(source.result):
                methods.append(_of_methods(name, scores))
        elif isinstance(source.result, IsotropyResults):
            spectra.append(_spectrum_of(name, source.result))
    return {
        "bars": [_bars_of(title, some) for title, some in _comparable(rows)],
        "methods": methods,
        "spectrum": spectra,
        "losses": [_losses_panel(one) for one in trainings.values()],
    }


def _comparable(rows: Sequence[ScoreRow]) -> Iterator[tuple[str, Sequence[ScoreRow]]]:
    """Yield titles, and up to 12 rows that have one key."""
    for key in dict.fromkeys(row.key for row in rows):
        some = [row for row in rows if row.key == key]
        shown = some[:_MOST_ROWS]
        first = some[0]
        metric = " ".join(filter(None, (METRIC_NAMES[first.metric], first.protocol)))
        title = f"{first.task}, {first.split}, {first.pairs:,} {first.unit}: {metric}"
        if len(shown) < len(some):
            title += f", the first {len(shown)} of {len(some)}"
        yield title, shown


def _bars_of(title: str, rows: Sequence[ScoreRow]) -> plots.Panel:
    """Return bars of comparable scores, beside baselines and published ones."""
    has_seeds = any(len(row.values_x100) > 1 for row in rows)
    return _bars(_score_series(rows), title, "deviation over seeds" if has_seeds else "")


def _of_methods(label: str, scores: _Scores) -> plots.Panel:
    """Return bars of a comparison's methods."""
    return _bars(scores, f"{label}: {', '.join(scores)}", "95 % of the change")


def _bars(scores: _Scores, title: str, spread: str) -> plots.Panel:
    def draw(axes: "Sequence[Axes]") -> None:
        plots.bars(scores, title=title, spread=spread, ax=axes[0])

    return plots.Panel(draw)


def _spectrum_of(label: str, result: IsotropyResults) -> plots.Panel:
    """Return the variance by direction on each side, and of a Gaussian."""
    sides: dict[str, Isotropy] = {**result.measures, "standard normal": result.reference}

    def draw(axes: "Sequence[Axes]") -> None:
        plots.spectrum(sides, title=f"{label}: variance by direction", ax=axes[0])

    return plots.Panel(draw)


def _losses_panel(trainings: Mapping[str, Losses]) -> plots.Panel:
    """Return the losses of trainings that have one unit."""
    named = dict(zip(_short(list(trainings)), trainings.values(), strict=True))

    def draw(axes: "Sequence[Axes]") -> None:
        plots.losses(named, ax=axes[0])

    return plots.Panel(draw)


def _score_series(rows: Sequence[ScoreRow]) -> dict[str, dict[str, plots.Score]]:
    """Return scores here, without a flow, and published ones, by row."""
    series: dict[str, dict[str, plots.Score]] = {
        "here": {},
        "without flow": {},
        "the paper": {},
        "TF1 code": {},
    }
    names = _short([row.name or row.model.pooling for row in rows])
    for name, row in zip(names, rows, strict=True):
        series["here"][name] = plots.Score.of_seeds(list(row.values_x100))
        if row.baseline:
            series["without flow"][name] = plots.Score.of_seeds(list(row.baseline.values_x100))
        if row.published.paper is not None:
            series["the paper"][name] = plots.Score(row.published.paper)
        if row.published.original:
            series["TF1 code"][name] = plots.Score.of_seeds(row.published.original)
    return {name: scores for name, scores in series.items() if scores}


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


def _short(names: Sequence[str]) -> list[str]:
    """Return names without their common folders, in lines of some words."""
    parts = [name.split("/") for name in names]
    folders = zip(*(one[:-1] for one in parts), strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda found: len(set(found)) == 1, folders))
    cut = ["/".join(one[common:]) for one in parts]
    return ["\n".join(textwrap.wrap(name, _NAME_WIDTH)) for name in cut]
