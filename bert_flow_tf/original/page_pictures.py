"""The pictures of a report's page."""

import base64
import io
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.records import IsotropyResults
from bert_flow_tf.original.records import Source
from bert_flow_tf.original.rows import ScoreRow
from bert_flow_tf.plots.bars import Score, bars, scores_of_comparison
from bert_flow_tf.plots.losses import losses
from bert_flow_tf.plots.spectrum import spectrum
from bert_flow_tf.table import METRIC_NAMES
from bert_flow_tf.training.losses import Losses, read_losses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More bars in one picture would be too thin for their names.
_MOST_ROWS = 12
# A longer name of a row takes several lines.
_NAME_WIDTH = 24


class Picture(NamedTuple):
    """A picture for a page; the address holds all of it."""

    address: str
    words: str


def pictures_of(rows: Sequence[ScoreRow], sources: Sequence[Source]) -> Iterator[Picture]:
    """Yield pictures of scores, comparisons, spectra and losses."""
    for title, some in comparable(rows):
        yield _scores(title, some)
    for source in sources:
        if isinstance(source.result, Comparison):
            scores = scores_of_comparison(source.result)
            if scores:
                words = f"{source.label}: methods; whiskers are the 95 % interval of the change"
                yield _picture(bars(scores), words)
        elif isinstance(source.result, IsotropyResults):
            sides = source.result.measures | {"standard normal": source.result.reference}
            yield _picture(spectrum(sides), f"{source.label}: variance by direction")
    yield from _losses(sources)


def comparable(rows: Sequence[ScoreRow]) -> Iterator[tuple[str, Sequence[ScoreRow]]]:
    """Yield titles, and up to 12 rows that have one metric."""
    for key in dict.fromkeys(row.key for row in rows):
        some = [row for row in rows if row.key == key]
        shown = some[:_MOST_ROWS]
        title = f"{some[0].task}, {some[0].split}: {METRIC_NAMES[some[0].metric]}"
        if len(shown) < len(some):
            title += f", the first {len(shown)} of {len(some)}"
        yield title, shown


def _scores(title: str, rows: Sequence[ScoreRow]) -> Picture:
    """Return bars of comparable scores, beside baselines and published ones."""
    figure = bars(score_series(rows), unit=f"{METRIC_NAMES[rows[0].metric]} (x100)")
    figure.axes[0].set_title(title, fontsize=10, loc="left")
    return _picture(figure, f"{title}; whiskers are the deviation over seeds")


def score_series(rows: Sequence[ScoreRow]) -> dict[str, dict[str, Score]]:
    """Return scores here, without a flow, and published ones, by row."""
    series: dict[str, dict[str, Score]] = {"here": {}, "without flow": {}}
    series |= {"the paper": {}, "TF1 code": {}}
    names = _short([row.name or row.model.pooling for row in rows])
    for name, row in zip(names, rows, strict=True):
        series["here"][name] = Score.of_seeds(list(row.values_x100))
        if row.baseline:
            series["without flow"][name] = Score.of_seeds(list(row.baseline.values_x100))
        if row.published.paper is not None:
            series["the paper"][name] = Score(row.published.paper)
        if row.published.original:
            series["TF1 code"][name] = Score.of_seeds(row.published.original)
    return {name: scores for name, scores in series.items() if scores}


def _losses(sources: Sequence[Source]) -> Iterator[Picture]:
    """Yield the losses of the runs' trainings, a picture for each unit."""
    found: dict[str, dict[str, Losses]] = {}
    for folder in dict.fromkeys(source.path.parent for source in sources):
        try:
            one = read_losses(folder)
        except UserError:
            # Results of a run without training have none.
            continue
        found.setdefault(one.unit, {})[str(folder)] = one
    for unit, trainings in found.items():
        yield _picture(
            losses(shortly_named(trainings)), f"losses in {unit}: {', '.join(trainings)}"
        )


def shortly_named(trainings: dict[str, Losses]) -> dict[str, Losses]:
    """Return losses by their folder without what all folders share."""
    return dict(zip(_short(list(trainings)), trainings.values(), strict=True))


def _short(names: Sequence[str]) -> list[str]:
    """Return names without their common folders, in lines of some words."""
    parts = [name.split("/") for name in names]
    folders = zip(*(one[:-1] for one in parts), strict=False)
    common = sum(1 for _ in itertools.takewhile(lambda found: len(set(found)) == 1, folders))
    cut = ["/".join(one[common:]) for one in parts]
    return ["\n".join(textwrap.wrap(name, _NAME_WIDTH)) for name in cut]


def _picture(figure: "Figure", words: str) -> Picture:
    import matplotlib

    file = io.BytesIO()
    # Without a date and random names, the same results give the same page.
    with matplotlib.rc_context({"svg.hashsalt": "bert-flow"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = base64.b64encode(file.getvalue()).decode("ascii")
    return Picture(f"data:image/svg+xml;base64,{text}", words)
