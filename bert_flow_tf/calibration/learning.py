"""Learn maps of vectors, and measure them."""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bert_flow_tf.calibration.affine import AffineMethod, affine_form
from bert_flow_tf.calibration.flow_training import Blocks, new_calibrator, train_flow, user_errors
from bert_flow_tf.calibration.history import History
from bert_flow_tf.calibration.judgement import Map, Pairs, judge
from bert_flow_tf.calibration.methods import NONE, Method, cloned
from bert_flow_tf.calibration.own import OwnCalibration
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.calibration.witness import witness
from bert_flow_tf.common.errors import UserError, warn_user
from bert_flow_tf.common.losses import BITS
from bert_flow_tf.common.records import CalibrationRecord, Setting, Training
from bert_flow_tf.vectors.isotropy import Change, measure_isotropy
from bert_flow_tf.vectors.similarities import has_direction
from bert_flow_tf.vectors.thresholds import threshold
from glow.chain import Chain
from glow.maps import AffineMap, VectorMap

if TYPE_CHECKING:
    from glow.calibrator import Loss

# Fewer held-out sentences would give a poor estimate of the effect; more would hardly improve it.
_LEAST_HELD_OUT = 10
_MOST_HELD_OUT = 1000
_FEW_DIFFERENT = 100
# Fewer held-out sentences would give a poor threshold.
ENOUGH_FOR_THRESHOLD = 200

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


class _Split(NamedTuple):
    """All rows, those to learn on, and held-out ones with their sentences.

    Rows of an array have no sentences.
    """

    every: Any
    kept: Any
    held_out: np.ndarray | None = None
    texts: Sequence[str] = ()


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
    loss: "Loss | None" = None,
    callbacks: Sequence[Any] = (),
    show_progress_bar: bool | None = None,
) -> Fitted:
    """Learn a method's maps, and measure them.

    What a method decides, it decides on all rows. What is measured was learned without the
    held-out rows; maps without a flow are then learned on all. A method that needs all rows is not
    measured on held-out ones.

    Args:
      data: sentences, which `measuring` encodes; vectors [n, D]; or blocks of them, for a flow
        alone.
      loss, callbacks: see `glow.FlowCalibrator`.

    Raises:
      UserError: there are fewer sentences than a flow's `batch_size`, the method has no use for a
        setting, or it fails.
    """
    settings.check_used([method])
    calibrator = new_calibrator(method, settings, loss, callbacks)
    is_own = method.calibrator is not None
    if calibrator is not None and is_own:
        settings = dataclasses.replace(
            settings, batch_size=calibrator.batch_size, seed=calibrator.seed
        )
    split = _split(data, method, settings, measuring.encode)
    transformers, maps = _fit_maps(method.transformers, split.every)
    tested = maps
    if maps and split.held_out is not None:
        tested = _without_held_out(transformers, split.kept)
        if not tested:
            split = _Split(split.every, split.every)
            tested = maps
    choice = "; ".join(filter(None, (getattr(one, "choice_", "") for one in transformers)))
    recorded: dict[str, Setting] = {
        "sentences": len(split.kept if method.has_flow else split.every),
        "held_out": 0 if split.held_out is None else len(split.held_out),
        "method": method.name,
    }
    if choice:
        recorded["choice"] = choice
    losses = History()
    if calibrator is not None:
        bits = _bits_of(tested)
        unit = "loss of its own" if calibrator.loss is not None else BITS
        if unit == BITS and bits is None:
            unit = f"{BITS} behind {method.name_before_flow}"
        train_flow(
            calibrator,
            None if is_own else settings,
            _forward(tested, split.kept) if tested else split.kept,
            None if split.held_out is None else _forward(tested, split.held_out),
            bits_before=bits or 0.0,
            show_progress_bar=show_progress_bar,
        )
        maps = tested = [*tested, calibrator.flow_]
        recorded |= {
            "steps": calibrator.n_steps_,
            "epochs": calibrator.epochs,
            "batch_size": calibrator.batch_size,
            "learning_rate": calibrator.learning_rate,
        }
        losses = History(
            losses=calibrator.losses_, held_out_losses=calibrator.held_out_losses_, unit=unit
        )
    measured = _measures(measuring, method, settings.seed, split, tested, maps)
    history = dataclasses.replace(losses, choice=choice, **measured)
    for one in maps:
        if not one.variables_by_path:
            warn_user(f"fit: found {one}, so it can be neither saved nor exported")
    record = CalibrationRecord(
        config=calibrator.config_ if calibrator is not None else None,
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
    texts: list[str] = []
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
    different = len(set(keys))
    if not keys:
        raise UserError("fit: found no sentences, expected some")
    if different < 2:
        raise UserError(f"fit: found one sentence {len(keys):,} times, expected different ones")
    if different < _FEW_DIFFERENT and method is not NONE and not method.name.startswith("auto"):
        meaning = (
            f"a {method.name} learned from fewer than {_FEW_DIFFERENT} fits them and hardly any "
            "others"
        )
        warn_user(f"fit: found {different} different sentences; {meaning}")
    vectors = data if isinstance(data, np.ndarray) else encode(texts, label="sentences")
    kept, held_out = hold_out(keys, settings)
    if not held_out:
        return _Split(vectors, vectors)
    held_out_texts = [texts[row] for row in held_out] if texts else []
    return _Split(vectors, vectors[kept], vectors[held_out], held_out_texts)


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


def _bits_of(maps: Sequence[VectorMap]) -> float | None:
    """Return the bits per dimension before a flow, None without any."""
    if not maps:
        return 0.0
    chain = Chain(maps, maps[0].event_size)
    return float(chain.bits_before()) if chain.has_bits_before else None


def _measures(
    measuring: Measuring,
    method: Method,
    seed: int,
    split: _Split,
    tested: Sequence[VectorMap],
    maps: Sequence[VectorMap],
) -> dict[str, Any]:
    """Measure maps on held-out rows, and on pairs; return fields of `History`.

    Args:
      tested: learned without the held-out rows.
      maps: learned on all rows.
    """
    encode = measuring.encode
    reduce = measuring.reduce
    found: dict[str, Any] = {}
    if measuring.pairs is not None:
        found["judgement"] = judge(
            functools.partial(encode, label="pairs"),
            reduce,
            lambda u: reduce(_forward(maps, u)),
            measuring.pairs,
            measuring.metric,
        )
    u = split.held_out
    if u is None:
        return found

    def after(u: np.ndarray) -> np.ndarray:
        return reduce(_forward(tested, u))

    # `low_dim` and `truncate_dim` hold on both sides. A row without a direction on either side,
    # such as zeros, is on neither.
    old = reduce(u)
    new = after(u)
    kept = has_direction(old) & has_direction(new)
    old = old[kept]
    new = new[kept]
    found["change"] = _change(old, new)
    if len(old) >= ENOUGH_FOR_THRESHOLD:
        found["thresholds"] = threshold(old), threshold(new)
    if split.texts and measuring.may_witness and method.has_witness:
        held_out = functools.partial(encode, label="held out")
        found["witness"] = witness(held_out, reduce, after, split.texts, u, seed)
    return found


def _change(old: np.ndarray, new: np.ndarray) -> Change | None:
    """Return the change of isotropy; None where a side does not vary."""
    if len(old) < 2 or any(np.all(side == side[0]) for side in (old, new)):
        return None
    return Change(measure_isotropy(old), measure_isotropy(new))


def _forward(maps: Sequence[VectorMap], vectors: np.ndarray) -> np.ndarray:
    """Return the maps' result [n, d] for vectors [n, D]."""
    return np.asarray(Chain(maps, vectors.shape[1]).forward(vectors))
