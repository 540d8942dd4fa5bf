"""Train the flow of `BertFlow.fit`."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

import glow
from bert_flow_tf.calibration.affine import affine_calibration
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.calibration.thresholds import threshold
from bert_flow_tf.calibration.witness import (
    AS_IT_IS,
    COMPARE,
    Compared,
    Judgement,
    Map,
    Witness,
    check_pairs,
    judge,
    witness,
)
from bert_flow_tf.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.evaluation.isotropy import Change, measure_isotropy
from bert_flow_tf.files.sentence_files import sentence_list
from bert_flow_tf.records import CalibrationRecord, Setting, Threshold, Training, Verdict
from bert_flow_tf.settings import flow_config
from glow.calibration import AffineMap, Calibration
from glow.config import GlowConfig

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

Pairs = tuple[Sequence[str], Sequence[str], Sequence[float]]
# The default 300 steps are like the original's 269 on the STS Benchmark. After fewer than 100,
# `learn` warns.
_ENOUGH_STEPS, _FEW_STEPS = 300, 100
# Fewer held-out sentences would give a poor estimate of the flow's effect; more would hardly
# improve it.
_HELD_OUT, _ENOUGH_HELD_OUT = range(10, 1001), 200
_FEW_DIFFERENT = 100


@dataclasses.dataclass(frozen=True)
class History:
    """The losses and the measured effect of a `fit`.

    Attributes:
      losses: float32 [steps], the loss before each step, in bits per dimension.
      judgement: the change of Spearman's correlation on labelled pairs; None without pairs.
      witness: the change of a measure that needs no labels; None without held-out sentences.
      change: the isotropy before and after; None without held-out sentences.
      thresholds: the cosine that one in 1,000 random pairs of held-out sentences exceeds, before
        and after; None with fewer than 200 held-out sentences.
    """

    losses: np.ndarray
    judgement: Judgement | None
    witness: Witness | None
    change: Change | None
    thresholds: tuple[Threshold, Threshold] | None = None

    @property
    def verdict(self) -> Verdict | None:
        """The claim of the pairs, else of the witness; None without measures."""
        measure, words = self.judgement or self.witness, str(self)
        claim = measure.claim.removesuffix(COMPARE) if measure else "not judged"
        return Verdict(claim=claim, words=words) if words else None

    def __str__(self) -> str:
        lines = [str(one) for one in (self.judgement, self.witness, self.change) if one is not None]
        if self.judgement and self.witness:
            lines[1] = f"without labels: {lines[1].replace(COMPARE, '').removesuffix(AS_IT_IS)}"
        if self.thresholds:
            before, after = self.thresholds
            cosines = f"a cosine of {before} before, {after} after"
            lines.append(f"one in {1 / before.false_matches:,.0f} random pairs exceeds {cosines}")
        return "\n".join(lines)


def hold_out(sentences: list[Any], settings: FitSettings) -> tuple[list[Any], list[Any]]:
    """Split sentences, or rows' numbers, into a training set and held-out ones.

    Hold out `dev_fraction` of the distinct sentences, but at least 200 or a fifth of them,
    whichever is fewer, and at most 1,000. Hold out nothing if it is 0, if they would be fewer than
    10, or if less than a batch would remain.
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
    record: CalibrationRecord
    history: History


def fit_sentences(
    encode: Callable[..., np.ndarray],
    sentences: Iterable[str],
    settings: FitSettings,
    pairs: Pairs | None = None,
    *,
    reduce: Map = np.asarray,
    show_progress_bar: bool | None = None,
) -> Fitted:
    """Learn a calibration of an encoder from sentences.

    Args:
      encode: function from a list of sentences, and the progress bar's `label`, to embeddings [n,
        D].
      reduce: function that follows the calibration, from [n, D].

    Raises:
      UserError: there are fewer sentences than `batch_size`, `pairs` has another form, or `learn`
        fails.
    """
    pairs = None if pairs is None else checked_pairs(pairs)
    # An empty line of a file is no sentence.
    texts = [text for text in sentence_list(sentences) if text.strip()]
    if len(texts) < settings.batch_size:
        raise UserError(
            f"fit: found {len(texts)} sentences, expected at least the {settings.batch_size} of "
            "one step"
        )
    _check_different(len(set(texts)), len(texts), settings.method)
    texts, held_out = hold_out(texts, settings)
    u = encode(texts, label="sentences")
    return fitted(
        encode, u, len(u), settings, pairs, held_out, reduce, show_progress_bar=show_progress_bar
    )


def compare(
    encode: Callable[..., np.ndarray],
    sentences: Iterable[str],
    methods: Sequence[str],
    settings: FitSettings,
    pairs: Pairs | None = None,
    *,
    reduce: Map = np.asarray,
    show_progress_bar: bool | None = None,
) -> list[Compared]:
    """Learn several calibrations of the same embeddings; return their measures.

    The arguments are those of `fit_sentences`; of each list of sentences, `encode` is called once.
    The first row is the encoder without a calibration. A method that fails, such as whitening of
    few sentences, is left out with a warning.
    """
    cached = functools.cache(lambda texts, label: encode(list(texts), label=label))
    texts, histories, problems = (
        sentence_list(sentences),
        dict[str, History](),
        dict[str, UserError](),
    )
    options: Any = {"reduce": reduce, "show_progress_bar": show_progress_bar}
    for method in methods:
        one = dataclasses.replace(settings, method=method)
        try:
            fitted = fit_sentences(
                lambda some, label: cached(tuple(some), label), texts, one, pairs, **options
            )
            histories[method] = fitted.history
        except UserError as error:
            problems[method] = error
    if not histories:
        raise next(iter(problems.values()))
    for method, problem in problems.items():
        warn_user(f"compare: {method} is left out: {problem}")
    # Not every method has a witness.
    first = max(histories.values(), key=lambda one: one.witness is not None)
    return [
        compared("none", first, 0),
        *(compared(method, one, 1) for method, one in histories.items()),
    ]


def compared(method: str, history: History, side: int) -> Compared:
    """Return the figures before (`side` 0) or after (1) a calibration."""
    judged, change, cut = history.judgement, history.change, history.thresholds
    values: dict[str, Any] = {
        "verdict": history.verdict.claim if side and history.verdict else None
    }
    if judged:
        values |= {
            "spearman": (judged.before, judged.after)[side],
            "auc": judged.auc and judged.auc[side],
        }
        values |= {"best_f1": judged.best_f1 and judged.best_f1[side]}
        values |= {"interval": (judged.low, judged.high)} if side else {}
    if history.witness:
        values |= {"witness": (history.witness.before, history.witness.after)[side]}
        values |= {"witness_claim": history.witness.claim.removesuffix(COMPARE)} if side else {}
    return Compared(
        method=method,
        mean_cosine=None if change is None else (change.before, change.after)[side].mean_cosine,
        threshold=cut and cut[side].cosine,
        **values,
    )


def _check_different(different: int, count: int, method: str) -> None:
    if different < 2:
        raise UserError(f"fit: found one sentence {count:,} times, expected different ones")
    if different < _FEW_DIFFERENT:
        meaning = (
            f"a {method} learned from fewer than {_FEW_DIFFERENT} fits them and hardly any others"
        )
        warn_user(f"fit: found {different} different sentences; {meaning}")


def fit_array(embeddings: np.ndarray, settings: FitSettings) -> Fitted:
    """Learn a calibration of embeddings [n, D], without pairs and `Witness`."""
    _check_different(len(np.unique(embeddings, axis=0)), len(embeddings), settings.method)
    rows, held_out = hold_out(list(range(len(embeddings))), settings)
    return fitted(
        lambda rows, label: embeddings[rows],
        embeddings[rows],
        len(rows),
        settings,
        held_out=held_out,
    )


def fitted(
    encode: Callable[..., np.ndarray],
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
    encode_held_out, encode_pairs = (
        functools.partial(encode, label=label) for label in ("held out", "pairs")
    )
    dev = encode_held_out(held_out) if held_out else None
    calibration, config, losses, learned = learn(settings, embeddings, rows, dev, show_progress_bar)

    def calibrate(u: np.ndarray) -> np.ndarray:
        return np.asarray(reduce(calibration.forward(u)))

    judged = None if pairs is None else judge(encode_pairs, calibrate, *pairs)
    is_text = bool(held_out) and isinstance(held_out[0], str)
    # The rule of docs/witness.md was right in 36 of 43 claims about sn, which is too few; natsv was
    # not studied.
    has_witness = is_text and not settings.method.startswith(("sn", "natsv"))
    witnessed = (
        witness(encode_held_out, calibrate, held_out, settings.seed) if has_witness else None
    )
    sides = None if dev is None else (dev, np.asarray(calibration.forward(dev)))
    change = None if sides is None else Change(*map(measure_isotropy, sides))
    cuts = None
    if dev is not None and is_text and len(held_out) >= _ENOUGH_HELD_OUT:
        both = dev, calibrate(dev)
        # Rows of zeros have no cosine.
        if all(side.any(axis=1).all() for side in both):
            cuts = threshold(both[0]), threshold(both[1])
    training = Training(
        settings={"sentences": rows, "held_out": len(held_out), **learned}, seed=settings.seed
    )
    history = History(losses, judged, witnessed, change, cuts)
    return Fitted(
        calibration,
        CalibrationRecord(config=config, training=training, verdict=history.verdict),
        history,
    )


def affine_map(method: str, embeddings: np.ndarray) -> AffineMap:
    """Learn whitening or another affine calibration on embeddings [n, D]."""
    n, width = len(np.unique(embeddings, axis=0)), embeddings.shape[1]
    if method.startswith("whitening"):
        rank = int(method.partition("-")[2] or width)
        if rank > width:
            raise UserError(f"fit: found {method}, expected at most the {width} channels")
        if n <= width:
            expected = f"expected more than the {width} channels, or soft-whitening-0.1"
            raise UserError(f"fit: found {n:,} different sentences for {method}, {expected}")
        if n < 2 * rank:
            meaning = (
                f"fewer than twice the {rank} directions of {method} fit these better than "
                "other sentences"
            )
            warn_user(f"fit: found {n:,} different sentences; {meaning}")
    with _user_errors():
        mean, matrix = affine_calibration(method, embeddings)
        if not np.isfinite(matrix).all():
            raise ValueError("found embeddings that do not vary, expected different ones")
    # whitening-D keeps D channels; zeros keep the width of the embeddings, and `truncate_dim=D`
    # cuts them.
    return AffineMap(width, mean, np.pad(matrix, ((0, 0), (0, width - matrix.shape[1]))))


def checked_pairs(pairs: Any) -> Pairs:
    """Return pairs; raise `UserError` for another shape."""
    try:
        a, b, scores = ([*side] for side in pairs)
        scores = [float(score) for score in scores]
        is_valid = not isinstance(pairs, str) and all(isinstance(one, str) for one in (*a, *b))
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        found = f"{pairs!r:.40}"
        raise ArgumentError(
            f"pairs: found {found}, expected (first sentences, second sentences, scores)"
        )
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
    given: dict[str, Any] = {
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
    }
    epochs = settings.epochs or float(max(1, math.ceil(_ENOUGH_STEPS * settings.batch_size / rows)))
    config = flow_config(settings.flow_model_config)
    is_array = isinstance(embeddings, np.ndarray)
    # Only a flow that sees sentences again can learn them by heart.
    stops_early = is_array and held_out is not None and settings.epochs is None and epochs > 1
    shown = show_progress_bar if is_array else False
    with _user_errors():
        calibrator = glow.FlowCalibrator(
            config, epochs, seed=settings.seed, show_progress_bar=shown, **given
        )
        if isinstance(embeddings, np.ndarray):
            calibrator.fit(embeddings, held_out=held_out if stops_early else None)
            epochs = calibrator.n_steps_ * settings.batch_size / rows if stops_early else epochs
        else:
            _learn_blocks(calibrator, embeddings, int(rows * epochs), show_progress_bar)
    if not stops_early and calibrator.n_steps_ < _FEW_STEPS:
        advice = (
            f"after fewer than {_FEW_STEPS}, a flow may be worse than none: use more "
            "sentences or epochs"
        )
        warn_user(f"fit: {calibrator.n_steps_} steps on {rows} sentences; {advice}")
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
        raise ValueError(
            f"found {found}, expected at least the {calibrator.batch_size} of one step"
        )
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
