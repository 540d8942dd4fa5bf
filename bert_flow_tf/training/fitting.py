"""Train the flow of `BertFlow.fit`."""

import contextlib
import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

import glow
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.isotropy import Change, measure_isotropy
from bert_flow_tf.evaluation.witness import COMPARE, Encode, Judgement, Map, Witness, check_pairs, judge, witness
from bert_flow_tf.files.sentence_files import sentence_list
from bert_flow_tf.runs.record import Flow, Setting, Training
from bert_flow_tf.runs.settings import FitSettings, flow_config
from glow.affine import AffineMap
from glow.calibration import Calibration
from glow.config import GlowConfig

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

Pairs = tuple[Sequence[str], Sequence[str], Sequence[float]]
# The default 300 steps are like the original's 269 on the STS Benchmark. After fewer than 100, `learn` warns.
_ENOUGH_STEPS, _FEW_STEPS = 300, 100
# Fewer held-out sentences would give a poor estimate of the flow's effect; more would hardly improve it.
_HELD_OUT, _ENOUGH_HELD_OUT = range(10, 1001), 200


@dataclasses.dataclass(frozen=True)
class History:
    """The record of a flow's training.

    Attributes:
      losses: float32 [steps], the loss before each step, in bits per dimension.
      judgement: the change of Spearman's correlation on labelled pairs; None without pairs.
      witness: the change of a measure that needs no labels; None without held-out sentences.
      change: the isotropy before and after; None without held-out sentences.
    """

    losses: np.ndarray
    judgement: Judgement | None
    witness: Witness | None
    change: Change | None

    def __str__(self) -> str:
        text = "\n".join(str(one) for one in (self.judgement, self.witness, self.change) if one is not None)
        return text.replace(COMPARE, "") if self.judgement else text


def hold_out(sentences: list[Any], settings: FitSettings) -> tuple[list[Any], list[Any]]:
    """Split sentences, or rows' numbers, into a training set and held-out ones.

    Hold out `dev_fraction` of the distinct sentences, but at least 200 or a fifth of them, whichever is fewer, and at
    most 1,000. Hold out nothing if it is 0, if they would be fewer than 10, or if less than a batch would remain.
    """
    fraction = settings.dev_fraction
    distinct = sorted(set(sentences))
    least = min(_ENOUGH_HELD_OUT, len(distinct) // 5)
    count = min(max(int(fraction * len(distinct)), least), _HELD_OUT[-1])
    if not fraction or count not in _HELD_OUT:
        return sentences, []
    chosen = np.random.default_rng([settings.seed, 3]).choice(len(distinct), count, replace=False)
    held_out = {distinct[i] for i in chosen}
    kept = [sentence for sentence in sentences if sentence not in held_out]
    return (kept, sorted(held_out)) if len(kept) >= settings.batch_size else (sentences, [])


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A calibration, its record and the history of its training."""

    calibration: Calibration
    record: Flow
    history: History


def fit_sentences(
    encode: Encode,
    sentences: Iterable[str],
    settings: FitSettings,
    pairs: Pairs | None = None,
    *,
    reduce: Map = np.asarray,
    show_progress_bar: bool | None = None,
) -> Fitted:
    """Learn a calibration of an encoder from sentences.

    Args:
      encode: function from a list of sentences to embeddings [n, D].
      reduce: function that follows the calibration, from [n, D].

    Raises:
      UserError: there are fewer sentences than `batch_size`, `pairs` has another form, or `learn` fails.
    """
    pairs = None if pairs is None else checked_pairs(pairs)
    texts = sentence_list(sentences)
    if len(texts) < settings.batch_size:
        raise UserError(f"fit: found {len(texts)} sentences, expected at least the {settings.batch_size} of one step")
    texts, held_out = hold_out(texts, settings)
    u = encode(texts)
    return fitted(encode, u, len(u), settings, pairs, held_out, reduce, show_progress_bar=show_progress_bar)


def fit_array(embeddings: np.ndarray, settings: FitSettings) -> Fitted:
    """Learn a calibration of embeddings [n, D], without pairs and `Witness`."""
    rows, held_out = hold_out(list(range(len(embeddings))), settings)
    return fitted(embeddings.__getitem__, embeddings[rows], len(rows), settings, held_out=held_out)


def fitted(
    encode: Callable[[Any], np.ndarray],
    embeddings: np.ndarray | Callable[[np.random.Generator], Iterable[np.ndarray]],
    rows: int,
    settings: FitSettings,
    pairs: Pairs | None = None,
    held_out: Sequence[Any] = (),
    reduce: Map = np.asarray,
    *,
    show_progress_bar: bool | None = None,
) -> Fitted:
    """Learn a calibration of embeddings and judge it.

    Args:
      encode: function from some of `held_out`, or of the pairs' sentences, to embeddings [n, D].
      embeddings, rows: see `learn`.
      held_out: sentences, or numbers of rows, that are not among `embeddings`.
      reduce: function that follows the calibration, from [n, D].
    """
    dev = encode(held_out) if held_out else None
    calibration, config, losses, learned = learn(settings, embeddings, rows, dev, show_progress_bar)

    def calibrate(u: np.ndarray) -> np.ndarray:
        return np.asarray(reduce(calibration.forward(u)))

    judged = None if pairs is None else judge(encode, calibrate, *pairs)
    is_text = bool(held_out) and isinstance(held_out[0], str)
    witnessed = witness(encode, calibrate, held_out, settings.seed) if is_text else None
    sides = None if dev is None else (dev, np.asarray(calibration.forward(dev)))
    change = None if sides is None else Change(*map(measure_isotropy, sides))
    training = Training(settings={"sentences": rows, "held_out": len(held_out), **learned}, seed=settings.seed)
    return Fitted(calibration, Flow(config=config, training=training), History(losses, judged, witnessed, change))


def affine_map(method: str, embeddings: np.ndarray) -> AffineMap:
    """Learn whitening or another `calibration` on embeddings [n, D]."""
    # Loading scikit-learn takes a second.
    from bert_flow_tf.evaluation.calibration import calibration

    n, width = embeddings.shape
    if method.startswith("whitening") and n <= width:
        raise UserError(f"fit: found {n} sentences for {method}, expected more than the {width} channels")
    with _user_errors():
        fitted = calibration(method).fit(embeddings)
    mean = getattr(fitted[0] if hasattr(fitted, "steps") else fitted, "mean_", np.zeros(width))
    kept = fitted.transform(np.eye(width) + mean)
    # whitening-D keeps D channels; zeros keep the width of the embeddings, and `truncate_dim=D` cuts them.
    return AffineMap(width, mean, np.pad(kept, ((0, 0), (0, width - kept.shape[1]))))


def checked_pairs(pairs: Any) -> Pairs:
    """Return pairs; raise `UserError` for another shape."""
    try:
        a, b, scores = pairs
        is_valid = not isinstance(pairs, str) and all(isinstance(one, str) for one in (*a, *b))
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        found = f"{pairs!r:.40}"
        raise ArgumentError(f"pairs: found {found}, expected (first sentences, second sentences, scores)")
    check_pairs(a, b, scores)
    return a, b, scores


def learn(
    settings: FitSettings,
    embeddings: np.ndarray | Callable[[np.random.Generator], Iterable[np.ndarray]],
    rows: int,
    held_out: np.ndarray | None,
    show_progress_bar: bool | None,
) -> tuple[Calibration, GlowConfig | None, np.ndarray, dict[str, Setting]]:
    """Learn a calibration; return it, its flow's configuration, losses and settings.

    Args:
      embeddings: array [rows, D], or a function that returns blocks of them in a random order.
      held_out: array [m, D]; without `epochs`, training ends where these rows are most likely.

    Raises:
      UserError: the epochs have fewer rows than one step, or `FlowCalibrator.fit` fails.
    """
    if isinstance(embeddings, np.ndarray) and settings.method != "flow":
        learned = affine_map(settings.method, embeddings)
        return learned, None, np.empty(0, np.float32), {"method": settings.method}
    given: dict[str, Any] = {"batch_size": settings.batch_size, "learning_rate": settings.learning_rate}
    epochs = settings.epochs or float(max(1, math.ceil(_ENOUGH_STEPS * settings.batch_size / rows)))
    config = flow_config(settings.flow_model_config)
    with _user_errors():
        if isinstance(embeddings, np.ndarray):
            calibrator = glow.FlowCalibrator(
                config, epochs, seed=settings.seed, show_progress_bar=show_progress_bar, **given
            )
            # Only a flow that sees sentences again can learn them by heart.
            stops_early = held_out is not None and settings.epochs is None and epochs > 1
            calibrator.fit(embeddings, held_out=held_out if stops_early else None)
            epochs = calibrator.n_steps_ * settings.batch_size / rows if stops_early else epochs
        else:
            stops_early = False
            calibrator = glow.FlowCalibrator(config, epochs, seed=settings.seed, show_progress_bar=False, **given)
            _learn_blocks(calibrator, embeddings, int(rows * epochs), show_progress_bar)
    if not stops_early and calibrator.n_steps_ < _FEW_STEPS:
        advice = f"after fewer than {_FEW_STEPS}, a flow may be worse than none: use more sentences or epochs"
        # With this level, the warning names the line that called `BertFlow.fit`.
        warnings.warn(f"fit: {calibrator.n_steps_} steps on {rows} sentences; {advice}", stacklevel=6)
    learned_settings = {"steps": calibrator.n_steps_, "epochs": epochs, **given}
    return calibrator.flow_, calibrator.config_, calibrator.losses_, learned_settings


def _learn_blocks(
    calibrator: "FlowCalibrator",
    blocks: Callable[[np.random.Generator], Iterable[np.ndarray]],
    left: int,
    show_progress_bar: bool | None,
) -> None:
    if left < calibrator.batch_size:
        found = f"{left} rows in {calibrator.epochs} epochs"
        raise ValueError(f"found {found}, expected at least the {calibrator.batch_size} of one step")
    generator = np.random.default_rng([calibrator.seed, 2])
    endless = itertools.chain.from_iterable(blocks(generator) for _ in itertools.count())
    hide_bar = None if show_progress_bar is None else not show_progress_bar
    with tqdm(total=left, desc="flow", unit="sentence", disable=hide_bar) as progress:
        while left:
            block = next(endless)[:left]
            calibrator.partial_fit(block)
            progress.update(len(block))
            left -= len(block)


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UserError(f"fit: {error}") from error
