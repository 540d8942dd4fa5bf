"""The pictures of each result, for `--plot` and for a report's page."""

import functools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.calibration.history import History
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import is_run
from bert_flow_tf.common.losses import Losses
from bert_flow_tf.report import plots
from bert_flow_tf.report.analyses import WordTable
from bert_flow_tf.report.collected import LeftOut, Source
from bert_flow_tf.report.lexical import LexicalPairs
from bert_flow_tf.report.plots.style import shortened
from bert_flow_tf.report.rows import ScoreRow
from bert_flow_tf.tasks.scores import IsotropyResults
from bert_flow_tf.training.run_losses import read_up_to_damage
from bert_flow_tf.vectors.metrics import METRIC_NAMES
from bert_flow_tf.vectors.thresholds import threshold

# More bars in one picture would be too thin for their names.
_MOST_ROWS = 12
# `fit`, too, shows a threshold only of so many held-out sentences.
_ENOUGH = 200
# The keys are names as in `--panels`.
Pictures = dict[str, list[plots.Picture]]


def pictures_of_pairs(scored: Iterable[plots.ScoredPairs]) -> Pictures:
    """Draw graded pairs against their scores, and labels by cosine."""
    found: Pictures = {"gold": [], "reliability": []}
    for pairs in scored:
        name = "reliability" if pairs.has_labels else "gold"
        draw = plots.reliability if pairs.has_labels else plots.gold
        found[name].append(plots.Picture(functools.partial(draw, pairs), len(pairs.cosines)))
    return found


def pictures_of_isotropy(
    result: IsotropyResults,
    sides: Mapping[str, np.ndarray],
    colours: Sequence[object] | None = None,
    name: str = "",
) -> Pictures:
    """Draw cosines, the plane of two directions, and the spectrum.

    Args:
      sides: the measured embeddings.
      colours, name: see `plots.plane`.
    """
    counts, _ = plots.cosines_of(result)
    # Few sentences have no cosine that one in 1,000 pairs exceeds.
    cuts = {side: threshold(u).cosine for side, u in sides.items() if len(u) >= _ENOUGH}
    plane = functools.partial(plots.plane, sides, colours, name=name)
    return {
        "cosines": [plots.Picture(functools.partial(plots.cosines, counts, cuts))],
        "plane": [plots.Picture(plane, len(sides))],
        "spectrum": [plots.Picture(functools.partial(plots.spectrum, result.measures))],
    }


def pictures_of_comparison(result: Comparison, label: str = "") -> Pictures:
    """Draw the cosines of each method, and the scores on labelled pairs.

    `label` names the comparison among others.
    """
    found: Pictures = {"cosines": [], "bars": []}
    counts, thresholds = plots.cosines_of(result)
    if any(counts.values()):
        found["cosines"] = [plots.Picture(functools.partial(plots.cosines, counts, thresholds))]
    if scores := plots.scores_of_comparison(result):
        title = f"{label}: {', '.join(scores)}" if label else ""
        bars = functools.partial(plots.bars, scores, title=title, spread="95 % of the change")
        found["bars"] = [plots.Picture(bars)]
    return found


def pictures_of_history(history: History) -> Pictures:
    """Draw the cosines of held-out sentences, and the losses."""
    found: Pictures = {"cosines": [], "losses": []}
    counts, thresholds = plots.cosines_of(history)
    if counts:
        found["cosines"] = [plots.Picture(functools.partial(plots.cosines, counts, thresholds))]
    if losses := history.recorded_losses:
        found["losses"] = [plots.Picture(functools.partial(plots.losses, {"": losses}))]
    return found


def pictures_of_words(words: WordTable | None, lexical: LexicalPairs | None) -> Pictures:
    """Draw Figures 2 and 1 of the paper, and its Table 1."""
    found: Pictures = {"distances": [], "frequency": [], "words": []}
    if lexical is not None:
        distances = functools.partial(plots.distances, lexical)
        found["distances"] = [plots.Picture(distances, len(lexical.similarities))]
    if words is not None:
        plane = functools.partial(plots.word_plane, words.embeddings, words.ranks)
        found["frequency"] = [plots.Picture(functools.partial(plots.frequency, words.frequency))]
        found["words"] = [plots.Picture(plane)]
    return found


class ReportPictures(NamedTuple):
    """The pictures of a report, and what they cannot show."""

    pictures: Pictures
    left_out: list[LeftOut]


def report_pictures(
    rows: Sequence[ScoreRow], sources: Sequence[Source], runs: Iterable[str | os.PathLike]
) -> ReportPictures:
    """Return the pictures of results by name.

    Args:
      rows: of the table of scores; each task, split and metric has a picture.
      sources: results; each comparison and each record of isotropy has a picture.
      runs: files and folders of results; those that are runs, or hold some, show their losses.
    """
    found: Pictures = {
        "bars": [_bars_of(title, some) for title, some in _comparable(rows)],
        "methods": [],
        "spectrum": [],
        "losses": [],
    }
    labels = shortened([str(one.path) for one in sources])
    for label, source in zip(labels, sources, strict=True):
        if isinstance(source.result, Comparison):
            found["methods"] += pictures_of_comparison(source.result, label)["bars"]
        elif isinstance(source.result, IsotropyResults):
            sides = {**source.result.measures, "standard normal": source.result.reference}
            title = f"{label}: variance by direction"
            spectrum = functools.partial(plots.spectrum, sides, title=title)
            found["spectrum"].append(plots.Picture(spectrum))
    left_out: list[LeftOut] = []
    by_unit: dict[str, dict[str, Losses]] = {}
    for folder in _folders_of(map(pathlib.Path, runs)):
        try:
            losses, stops = read_up_to_damage(folder)
        except UserError as error:
            left_out.append(LeftOut(folder, str(error), is_damaged=True))
            continue
        left_out += [LeftOut(one.path, one.reason, one.is_damaged) for one in stops]
        if losses is not None:
            by_unit.setdefault(losses.unit, {})[str(folder)] = losses
    found["losses"] = [
        plots.Picture(functools.partial(plots.losses, trainings)) for trainings in by_unit.values()
    ]
    return ReportPictures(found, left_out)


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


def _bars_of(title: str, rows: Sequence[ScoreRow]) -> plots.Picture:
    """Return bars of comparable scores, beside baselines and published ones."""
    has_seeds = any(len(row.values_x100) > 1 for row in rows)
    spread = "deviation over seeds" if has_seeds else ""
    scores = _score_series(rows)
    return plots.Picture(functools.partial(plots.bars, scores, title=title, spread=spread))


def _score_series(rows: Sequence[ScoreRow]) -> dict[str, dict[str, plots.Score]]:
    """Return scores here, without a flow, and published ones, by row."""
    series: dict[str, dict[str, plots.Score]] = {
        "here": {},
        "without flow": {},
        "the paper": {},
        "TF1 code": {},
    }
    for row in rows:
        name = row.name or row.model.pooling
        series["here"][name] = plots.Score.of_seeds(list(row.values_x100))
        if row.baseline:
            series["without flow"][name] = plots.Score.of_seeds(list(row.baseline.values_x100))
        if row.published.paper is not None:
            series["the paper"][name] = plots.Score(row.published.paper)
        if row.published.original:
            series["TF1 code"][name] = plots.Score.of_seeds(row.published.original)
    return {name: scores for name, scores in series.items() if scores}


def _folders_of(paths: Iterable[pathlib.Path]) -> Iterator[pathlib.Path]:
    """Yield the folders that may have losses.

    They are the folders among the paths, or the folders in them.
    """
    for path in paths:
        if path.is_dir():
            inner = sorted(one for one in path.iterdir() if one.is_dir())
            yield from [path] if _is_run(path) or not inner else inner


def _is_run(folder: pathlib.Path) -> bool:
    """True for a run's folder, false if its configuration is damaged.

    The damage is named where the configuration is read.
    """
    try:
        return is_run(folder)
    except UserError:
        return False
