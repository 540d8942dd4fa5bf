"""Learn maps of vectors, and measure them."""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bert_flow_tf.calibration.affine import AffineMethod, affine_form
from bert_flow_tf.calibration.comparison import Row
from bert_flow_tf.calibration.flow_training import (
    NO_HOOKS,
    Blocks,
    Hooks,
    recorded_settings,
    train_flow,
    user_errors,
)
from bert_flow_tf.calibration.history import ENOUGH_FOR_THRESHOLD, HeldOut, History, Sides
from bert_flow_tf.calibration.judgement import Map, Pairs, judge
from bert_flow_tf.calibration.methods import NONE, Method, cloned
from bert_flow_tf.calibration.own import OwnCalibration
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.calibration.witness import witness
from bert_flow_tf.common.errors import UserError, warn_user
from bert_flow_tf.common.losses import BITS
from bert_flow_tf.common.records import CalibrationRecord, Setting, Training
from glow.chain import Chain
from glow.maps import AffineMap, VectorMap

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

# Fewer held-out sentences would give a poor estimate of the effect; more would hardly improve it.
_LEAST_HELD_OUT = 10
_MOST_HELD_OUT = 1000
_FEW_DIFFERENT = 100

# Such a function takes sentences and the progress bar's `label`, and returns embeddings [n, D].
Encode = Callable[..., np.ndarray]
Key = TypeVar("Key", str, bytes)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Maps of vectors, their record and the history of their training."""

    maps: list[VectorMap]
    record: CalibrationRecord
    history: History


def _no_encoder(texts: Sequence[str], label: str) -> np.ndarray:
    raise AssertionError("no texts belong to an array")


@dataclasses.dataclass(frozen=True)
class Measuring:
    """The pairs and functions that measure maps, beside held-out rows.

    Attributes:
      encode: function of texts; there is none for arrays.
      pairs: labelled pairs of texts.
      metric: the measure that decides on the pairs, see `judgement.deciding_measures`.
      reduce: function that follows the maps, from [n, D].
      may_witness: False for an encoder that the witness was not studied on.
    """

    encode: Encode = _no_encoder
    pairs: Pairs | None = None
    metric: str | None = None
    reduce: Map = np.asarray
    may_witness: bool = True


NOTHING_MORE = Measuring()


@dataclasses.dataclass(frozen=True)
class _Split:
    """All rows, those to learn on, and the held-out ones."""

    every: Any
    kept: Any
    held_out: HeldOut | None = None


def hold_out(keys: Sequence[Key], settings: FitSettings) -> tuple[list[int], list[int]]:
    """Split rows into those to learn on and held-out ones.

    Return the numbers of both. Hold out `dev_fraction` of the distinct keys, but at least 200 or a
    fifth of them, whichever is fewer, and at most 1,000. Hold out nothing if it is 0, if they would
    be fewer than 10, or if less than a batch would remain. A held-out key's repetitions are in
    neither list.

    Args:
      keys: the sentences, or the rows' bytes.
    """
    everything = list(range(len(keys)))
    distinct = sorted(set(keys))
    least = min(ENOUGH_FOR_THRESHOLD, len(distinct) // 5)
    count = min(max(int(settings.dev_fraction * len(distinct)), least), _MOST_HELD_OUT)
    if not settings.dev_fraction or count < _LEAST_HELD_OUT:
        return everything, []
    chosen = np.random.default_rng([settings.seed, 3]).choice(len(distinct), count, replace=False)
    first_row = {key: row for row, key in reversed(list(enumerate(keys)))}
    held_out = {distinct[i] for i in chosen}
    kept = [row for row in everything if keys[row] not in held_out]
    if len(kept) < settings.batch_size:
        return everything, []
    return kept, [first_row[key] for key in sorted(held_out)]


def learn(
    data: Sequence[str] | np.ndarray | Blocks,
    method: Method,
    settings: FitSettings,
    measuring: Measuring = NOTHING_MORE,
    *,
    hooks: Hooks = NO_HOOKS,
    show_progress_bar: bool | None = None,
) -> Fitted:
    """Learn a method's maps, and measure them.

    What a method decides, it decides on all rows. What is measured was learned without the
    held-out rows; maps without a flow are then learned on all. A method that needs all rows is not
    measured on held-out ones.

    Args:
      data: sentences, which `measuring` encodes; vectors [n, D]; or blocks of them, for a flow
        alone.
      hooks: what a program adds to the training of a flow.

    Raises:
      UserError: there are fewer sentences than a flow's `batch_size`, the method has no use for a
        setting, or it fails.
    """
    settings.check_used([method])
    return _learn(data, method, settings, measuring, hooks, show_progress_bar)


def compare(
    texts: Sequence[str],
    methods: Sequence[Method],
    settings: FitSettings,
    measuring: Measuring,
    *,
    show_progress_bar: bool | None = None,
) -> list[Row]:
    """Learn several methods on the same sentences; return their histories.

    Each list of sentences is encoded once. The first row is the encoder as it is. A method that
    fails, such as whitening of few sentences, is left out with a warning.
    """
    settings.check_used(methods)
    cached = functools.cache(lambda some, label: measuring.encode(list(some), label=label))
    once = dataclasses.replace(measuring, encode=lambda some, label: cached(tuple(some), label))
    rows: list[Row] = []
    problems: dict[str, UserError] = {}
    none = dataclasses.replace(NONE, has_witness=any(method.has_witness for method in methods))
    for method in (none, *methods):
        try:
            fitted = _learn(texts, method, settings, once, NO_HOOKS, show_progress_bar)
            rows.append(Row(method=method.label, history=fitted.history))
        except UserError as error:
            problems[method.label] = error
    if len(rows) < 2:
        raise next(iter(problems.values()))
    for name, problem in problems.items():
        warn_user(f"compare: {name} is left out: {problem}")
    return rows


def _learn(
    data: Sequence[str] | np.ndarray | Blocks,
    method: Method,
    settings: FitSettings,
    measuring: Measuring,
    hooks: Hooks,
    show_progress_bar: bool | None,
) -> Fitted:
    hooks.check(method)
    settings = settings.for_method(method)
    split = _split(data, method, settings, measuring.encode)
    transformers, maps = _fit_maps(method.transformers, split.every)
    tested = maps
    if maps and split.held_out:
        tested = _without_held_out(transformers, split.kept)
        if not tested:
            split = _Split(split.every, split.every)
            tested = maps
    calibrator = None
    if method.has_flow:
        calibrator = _train_flow(method, settings, split, tested, hooks, show_progress_bar)
        maps = tested = [*tested, calibrator.flow_]
    choice = "; ".join(filter(None, (getattr(one, "choice_", "") for one in transformers)))
    history = _measured(measuring, method, settings, split.held_out, tested, maps, choice)
    recorded: dict[str, Setting] = {
        "sentences": _count(split.kept if method.has_flow else split.every),
        "held_out": len(split.held_out.vectors) if split.held_out else 0,
        "method": method.name,
    }
    if choice:
        recorded["choice"] = choice
    if calibrator is not None:
        recorded |= recorded_settings(calibrator)
        history = dataclasses.replace(
            history,
            losses=calibrator.losses_,
            held_out_losses=calibrator.held_out_losses_,
            unit=_unit(method, hooks, tested[:-1]),
        )
    for one in maps:
        if not one.variables_by_path:
            warn_user(f"fit: found {one}, so it can be neither saved nor exported")
    record = CalibrationRecord(
        config=calibrator.config_ if calibrator else None,
        training=Training(settings=recorded, seed=settings.seed),
        verdict=history.verdict,
    )
    return Fitted(maps, record, history)


def _split(
    data: Sequence[str] | np.ndarray | Blocks,
    method: Method,
    settings: FitSettings,
    encode: Encode,
) -> _Split:
    """Check the number of rows, encode sentences, and hold some out."""
    texts: list[str] | None = None
    if isinstance(data, np.ndarray):
        keys: Sequence[Any] = [row.tobytes() for row in data]
    elif isinstance(data, Sequence):
        # An empty line of a file is no sentence.
        keys = texts = [text for text in data if text.strip()]
        if method.has_flow and len(texts) < settings.batch_size:
            raise UserError(
                f"fit: found {len(texts)} sentences, expected at least the "
                f"{settings.batch_size} of one step"
            )
    else:
        # They do not fit into memory, so none are held out.
        return _Split(data, data)
    _check_different(len(set(keys)), len(keys), method)
    vectors = data if isinstance(data, np.ndarray) else encode(texts, label="sentences")
    kept, chosen = hold_out(keys, settings)
    if not chosen:
        return _Split(vectors, vectors)
    held_out = HeldOut([texts[row] for row in chosen] if texts else None, vectors[chosen])
    return _Split(vectors, vectors[kept], held_out)


def _check_different(different: int, count: int, method: Method) -> None:
    if not count:
        raise UserError("fit: found no sentences, expected some")
    if different < 2:
        raise UserError(f"fit: found one sentence {count:,} times, expected different ones")
    learns = method is not NONE and not method.name.startswith("auto")
    if different < _FEW_DIFFERENT and learns:
        meaning = (
            f"a {method.name} learned from fewer than {_FEW_DIFFERENT} fits them and hardly any "
            "others"
        )
        warn_user(f"fit: found {different} different sentences; {meaning}")


def _fit_maps(
    transformers: Sequence[Any], vectors: np.ndarray
) -> tuple[list[Any], list[VectorMap]]:
    """Fit copies of transformers in turn; return them and their maps."""
    fitted: list[Any] = []
    maps: list[VectorMap] = []
    for transformer in transformers:
        if maps:
            vectors = _forward(maps[-1:], vectors)
        fitted.append(_unfitted(transformer))
        maps.append(_fit_map(fitted[-1], vectors))
    return fitted, maps


def _without_held_out(transformers: Sequence[Any], kept: np.ndarray) -> list[VectorMap]:
    """Return maps of the same decisions, or none for too few rows."""
    # The warnings would repeat those about all rows, with other numbers.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _fit_maps(transformers, kept)[1]
        except UserError:
            return []


def _unfitted(transformer: Any) -> Any:
    """Return a copy that keeps what a fitted transformer has decided."""
    is_decided = isinstance(transformer, AffineMethod) and hasattr(transformer, "mean_")
    return transformer.decided() if is_decided else cloned(transformer)


def _fit_map(transformer: Any, vectors: np.ndarray) -> VectorMap:
    """Fit a transformer; return an affine map if it is one."""
    width = vectors.shape[1]
    name = " ".join(repr(transformer).split())
    with user_errors(), _errors_of(transformer):
        transformer.fit(vectors)
        form = affine_form(transformer, vectors)
        size = transformer.transform(vectors[:1]).shape[1]
        if size > width:
            raise ValueError(
                f"found {size} channels of {name}, expected at most the {width} before it"
            )
    return OwnCalibration(transformer, width, size) if form is None else AffineMap(width, *form)


@contextlib.contextmanager
def _errors_of(transformer: Any) -> Iterator[None]:
    """Raise the errors of a user's transformer as a `ValueError`."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        raise ValueError(f"{type(transformer).__name__} failed: {found}") from error


def _train_flow(
    method: Method,
    settings: FitSettings,
    split: _Split,
    before: list[VectorMap],
    hooks: Hooks,
    show_progress_bar: bool | None,
) -> "FlowCalibrator":
    """Train a flow on what the maps before it return."""
    held_out = split.held_out
    return train_flow(
        method,
        settings,
        _forward(before, split.kept) if before else split.kept,
        _forward(before, held_out.vectors) if held_out else None,
        hooks=hooks,
        bits_before=_bits_of(before) or 0.0,
        show_progress_bar=show_progress_bar,
    )


def _bits_of(maps: Sequence[VectorMap]) -> float | None:
    """Return the bits per dimension that maps add to a loss.

    It is None unless all of them are affine and have an inverse.
    """
    log_det = 0.0
    for one in maps:
        if not isinstance(one, AffineMap) or not one.is_invertible:
            return None
        log_det += float(one.log_det())
    return -log_det / (maps[0].event_size * np.log(2.0)) if maps else 0.0


def _unit(method: Method, hooks: Hooks, before: Sequence[VectorMap]) -> str:
    """Return the unit of a flow's losses."""
    own = hooks.loss if method.calibrator is None else method.calibrator.loss
    if own is not None:
        return "loss of its own"
    return BITS if _bits_of(before) is not None else f"{BITS} behind {method.name_before_flow}"


def _measured(
    measuring: Measuring,
    method: Method,
    settings: FitSettings,
    held_out: HeldOut | None,
    tested: Sequence[VectorMap],
    maps: Sequence[VectorMap],
    choice: str,
) -> History:
    """Measure maps on held-out rows, and on pairs.

    Args:
      tested: learned without the held-out rows.
      maps: learned on all rows.
    """
    encode = measuring.encode
    reduce = measuring.reduce
    judgement = None
    if measuring.pairs is not None:
        judgement = judge(
            functools.partial(encode, label="pairs"),
            reduce,
            lambda u: reduce(_forward(maps, u)),
            measuring.pairs,
            measuring.metric,
        )
    if held_out is None:
        return History(judgement=judgement, choice=choice)

    def after(u: np.ndarray) -> np.ndarray:
        return reduce(_forward(tested, u))

    sides = Sides.of(held_out.vectors, reduce, after)
    found = None
    if held_out.texts and measuring.may_witness and method.has_witness:
        found = witness(
            functools.partial(encode, label="held out"),
            reduce,
            after,
            held_out.texts,
            held_out.vectors,
            settings.seed,
        )
    return History(
        judgement=judgement,
        witness=found,
        change=sides.change,
        thresholds=sides.thresholds,
        choice=choice,
    )


def _forward(maps: Sequence[VectorMap], vectors: np.ndarray) -> np.ndarray:
    """Return the maps' result [n, d] for vectors [n, D]."""
    return np.asarray(Chain(maps, vectors.shape[1]).forward(vectors))


def _count(vectors: np.ndarray | Blocks) -> int:
    return len(vectors) if isinstance(vectors, np.ndarray) else vectors.rows
