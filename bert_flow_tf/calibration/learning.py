"""Learn a calibration of an encoder's embeddings, and measure it."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from bert_flow_tf.calibration.affine import affine_form
from bert_flow_tf.calibration.comparison import Compared, figures_of
from bert_flow_tf.calibration.flow_training import (
    Blocks,
    Hooks,
    new_calibrator,
    train_flow,
    train_flow_on_blocks,
    user_errors,
)
from bert_flow_tf.calibration.history import (
    ENOUGH_FOR_THRESHOLD,
    HeldOut,
    History,
    Sides,
    measured_change,
    measured_judgement,
    measured_thresholds,
    measured_witness,
)
from bert_flow_tf.calibration.judgement import Map, Pairs
from bert_flow_tf.calibration.methods import Method
from bert_flow_tf.calibration.own import OwnCalibration
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import UserError, warn_user
from bert_flow_tf.common.records import CalibrationRecord, Setting, Training
from bert_flow_tf.model.build import recorded_size
from bert_flow_tf.vectors.texts import sentence_list
from glow.calibration import AffineMap, Calibration
from glow.config import GlowConfig
from glow.whitened import WhitenedFlow

# Fewer held-out sentences would give a poor estimate of the effect; more would hardly improve it.
_LEAST_HELD_OUT = 10
_MOST_HELD_OUT = 1000
_FEW_DIFFERENT = 100
NO_HOOKS = Hooks()

# Such a function takes sentences and the progress bar's `label`, and returns embeddings [n, D].
Encode = Callable[..., np.ndarray]
Key = TypeVar("Key", str, bytes)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A calibration, its record and the history of its training."""

    calibration: Calibration
    record: CalibrationRecord
    history: History


@dataclasses.dataclass(frozen=True)
class Learned:
    """A calibration as it was learned, before it is measured.

    Attributes:
      settings: what its record says of the training.
    """

    calibration: Calibration
    settings: dict[str, Setting]
    config: GlowConfig | None = None
    losses: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.float32))
    held_out_losses: dict[int, float] = dataclasses.field(default_factory=dict)
    choice: str = ""


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


def fit_sentences(
    encode: Encode,
    sentences: Iterable[str],
    method: Method,
    settings: FitSettings,
    pairs: Pairs | None = None,
    *,
    metric: str | None = None,
    hooks: Hooks = NO_HOOKS,
    reduce: Map = np.asarray,
    may_witness: bool = True,
    show_progress_bar: bool | None = None,
) -> Fitted:
    """Learn a calibration of an encoder from sentences, and measure it.

    Args:
      metric: the measure that decides on the pairs, see `judgement.deciding_measures`.
      hooks: what a program adds to the training of a flow.
      reduce: function that follows the calibration, from [n, D].
      may_witness: False for an encoder that the witness was not studied on.

    Raises:
      UserError: there are fewer sentences than `batch_size`, or a method fails.
    """
    hooks.check(method)
    if method.flow not in (True, False):
        with user_errors():
            method.flow.check_settings()
    # An empty line of a file is no sentence.
    texts = [text for text in sentence_list(sentences) if text.strip()]
    if len(texts) < settings.batch_size:
        raise UserError(
            f"fit: found {len(texts)} sentences, expected at least the {settings.batch_size} of "
            "one step"
        )
    _check_different(len(set(texts)), len(texts), method)
    embeddings = encode(texts, label="sentences")
    kept, rows = hold_out(texts, settings)
    held_out = HeldOut([texts[row] for row in rows], embeddings[rows]) if rows else None
    learned = learn(method, settings, embeddings[kept], held_out, hooks, show_progress_bar)
    sides = _sides(learned.calibration, reduce)
    has_witness = may_witness and method.has_witness
    final = _learned_on_all(method, learned, embeddings, held_out)
    encode_held_out = functools.partial(encode, label="held out")
    history = History(
        losses=learned.losses,
        unit=hooks.unit,
        judgement=measured_judgement(
            functools.partial(encode, label="pairs"),
            _sides(final.calibration, reduce),
            pairs,
            metric,
        ),
        witness=(
            measured_witness(encode_held_out, sides, held_out, settings.seed)
            if has_witness
            else None
        ),
        change=measured_change(sides, held_out),
        thresholds=measured_thresholds(sides, held_out),
        choice=final.choice,
        held_out_losses=learned.held_out_losses,
    )
    learned_rows = len(kept) if method.flow else len(embeddings)
    return _recorded(final, settings, rows=learned_rows, held_out=len(rows), history=history)


def fit_array(embeddings: np.ndarray, method: Method, settings: FitSettings) -> Fitted:
    """Learn a calibration of embeddings [n, D], without pairs and `Witness`."""
    keys = [row.tobytes() for row in embeddings]
    _check_different(len(set(keys)), len(keys), method)
    kept, rows = hold_out(keys, settings)
    held_out = HeldOut(None, embeddings[rows]) if rows else None
    learned = learn(method, settings, embeddings[kept], held_out)
    final = _learned_on_all(method, learned, embeddings, held_out)
    history = History(
        losses=learned.losses,
        judgement=None,
        witness=None,
        change=measured_change(_sides(learned.calibration, np.asarray), held_out),
        choice=final.choice,
        held_out_losses=learned.held_out_losses,
    )
    learned_rows = len(kept) if method.flow else len(embeddings)
    return _recorded(final, settings, rows=learned_rows, held_out=len(rows), history=history)


def fit_blocks(
    encode: Encode,
    blocks: Blocks,
    rows: int,
    settings: FitSettings,
    pairs: Pairs | None,
    *,
    metric: str | None,
    reduce: Map,
    show_progress_bar: bool | None,
) -> Fitted:
    """Learn a flow of embeddings that do not fit into memory together.

    Args:
      rows: the number of embeddings in all blocks.
    """
    calibrator = new_calibrator(settings, rows, NO_HOOKS, False)
    trained = train_flow_on_blocks(calibrator, blocks, rows, show_progress_bar)
    learned = _flow_of(trained.calibrator, trained.settings)
    sides = _sides(learned.calibration, reduce)
    encode_pairs = functools.partial(encode, label="pairs")
    history = History(
        losses=learned.losses,
        judgement=measured_judgement(encode_pairs, sides, pairs, metric),
        witness=None,
        change=None,
    )
    return _recorded(learned, settings, rows=rows, held_out=0, history=history)


def compare(
    encode: Encode,
    sentences: Iterable[str],
    methods: Sequence[Method],
    settings: FitSettings,
    pairs: Pairs | None = None,
    *,
    metric: str | None = None,
    reduce: Map = np.asarray,
    may_witness: bool = True,
    show_progress_bar: bool | None = None,
) -> list[Compared]:
    """Learn several calibrations of the same embeddings; return their figures.

    The arguments are those of `fit_sentences`; of each list of sentences, `encode` is called once.
    The first row is the encoder without a calibration. A method that fails, such as whitening of
    few sentences, is left out with a warning.
    """
    cached = functools.cache(lambda texts, label: encode(list(texts), label=label))
    texts = sentence_list(sentences)
    histories: dict[str, History] = {}
    problems: dict[str, UserError] = {}
    for method in methods:
        try:
            fitted = fit_sentences(
                lambda some, label: cached(tuple(some), label),
                texts,
                method,
                settings,
                pairs,
                metric=metric,
                reduce=reduce,
                may_witness=may_witness,
                show_progress_bar=show_progress_bar,
            )
            histories[method.label] = fitted.history
        except UserError as error:
            problems[method.label] = error
    if not histories:
        raise next(iter(problems.values()))
    for name, problem in problems.items():
        warn_user(f"compare: {name} is left out: {problem}")
    # Not every method has a witness.
    first = max(histories.values(), key=lambda one: one.witness is not None)
    return [
        figures_of("none", first, is_after=False),
        *(figures_of(name, history, is_after=True) for name, history in histories.items()),
    ]


def _check_different(different: int, count: int, method: Method) -> None:
    if different < 2:
        raise UserError(f"fit: found one sentence {count:,} times, expected different ones")
    if different < _FEW_DIFFERENT and not method.name.startswith("auto"):
        meaning = (
            f"a {method.name} learned from fewer than {_FEW_DIFFERENT} fits them and hardly any "
            "others"
        )
        warn_user(f"fit: found {different} different sentences; {meaning}")


def _sides(calibration: Calibration, reduce: Map) -> Sides:
    return Sides(before=reduce, after=lambda u: reduce(np.asarray(calibration.forward(u))))


def learn(
    method: Method,
    settings: FitSettings,
    embeddings: np.ndarray,
    held_out: HeldOut | None,
    hooks: Hooks = NO_HOOKS,
    show_progress_bar: bool | None = None,
) -> Learned:
    """Learn a calibration of embeddings [n, D].

    Raises `UserError` if the method fails.
    """
    is_own = method.flow not in (True, False)
    if not method.flow:
        return _learn_map(method, embeddings)
    dev = None if held_out is None else held_out.embeddings
    whitening: AffineMap | OwnCalibration | None = None
    if method.transformer is not None:
        whitening = _affine_map(method, embeddings)
        if not isinstance(whitening, AffineMap) or whitening.output_size != whitening.event_size:
            expected = "expected an affine map of all channels before the flow"
            raise UserError(f"fit: found {method.name}, {expected}")
        embeddings = whitening.forward(embeddings).numpy()
        dev = None if dev is None else whitening.forward(dev).numpy()
    calibrator = method.flow
    if not is_own:
        calibrator = new_calibrator(settings, len(embeddings), hooks, show_progress_bar)
    trained = train_flow(
        calibrator,
        embeddings,
        dev,
        ends_early=not is_own and settings.epochs is None,
        config_name="" if is_own else settings.flow_model_config,
    )
    learned = _flow_of(trained.calibrator, trained.settings)
    if not isinstance(whitening, AffineMap):
        return learned
    return dataclasses.replace(
        learned,
        calibration=WhitenedFlow(whitening, trained.calibrator.flow_),
        settings={"method": method.name, **trained.settings},
    )


def _flow_of(calibrator: Any, settings: dict[str, Setting]) -> Learned:
    return Learned(
        calibrator.flow_,
        settings,
        config=calibrator.config_,
        losses=calibrator.losses_,
        held_out_losses=calibrator.held_out_losses_,
    )


def _learn_map(method: Method, embeddings: np.ndarray) -> Learned:
    """Learn a method without a flow."""
    calibration: Calibration = _affine_map(method, embeddings)
    choice = getattr(method.transformer, "choice_", "")
    settings: dict[str, Setting] = {"method": method.name}
    if choice:
        settings["choice"] = choice
    return Learned(calibration, settings, choice=choice)


def _affine_map(method: Method, embeddings: np.ndarray) -> AffineMap | OwnCalibration:
    """Fit a method's transformer; return an affine map if it is one."""
    transformer = method.transformer
    width = embeddings.shape[1]
    with user_errors():
        transformer.fit(embeddings)
        form = affine_form(transformer, embeddings)
        size = transformer.transform(embeddings[:1]).shape[1]
        if size > width:
            raise ValueError(
                f"found {size} channels of {method.name}, expected at most the encoder's {width}"
            )
    if form is None:
        return OwnCalibration(transformer, width, size)
    return AffineMap(width, *form)


def _learned_on_all(
    method: Method, learned: Learned, embeddings: np.ndarray, held_out: HeldOut | None
) -> Learned:
    """Learn again, with the held-out rows, if training did not need them.

    A flow ends its training by them. What was learned without them is what they measured.
    """
    if method.flow or held_out is None:
        return learned
    return _learn_map(method, embeddings)


def _recorded(
    learned: Learned, settings: FitSettings, *, rows: int, held_out: int, history: History
) -> Fitted:
    if isinstance(learned.calibration, OwnCalibration):
        warn_user(f"fit: found {learned.calibration}, so it can be neither saved nor exported")
    recorded: dict[str, Setting] = {"sentences": rows, "held_out": held_out, **learned.settings}
    training = Training(settings=recorded, seed=settings.seed)
    record = CalibrationRecord(
        config=learned.config,
        training=training,
        output_size=recorded_size(learned.calibration),
        verdict=history.verdict,
    )
    return Fitted(learned.calibration, record, history)
