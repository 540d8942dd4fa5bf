"""The rules of the learner, one test for each kind of fault."""

import copy
import dataclasses
import inspect
import os
import types
import typing

import numpy as np
import pytest
import tf_keras
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from bert_flow_tf import BertFlow, FlowCalibrator, calibrate, compare
from bert_flow_tf.calibration import judgement, learning
from bert_flow_tf.calibration.affine import Whitening, affine_form
from bert_flow_tf.calibration.auto import Auto
from bert_flow_tf.calibration.methods import cloned, find_method
from bert_flow_tf.calibration.settings import FitKeywords, FitSettings
from bert_flow_tf.model.base import CalibratedEncoder, FitOptions
from glow.chain import Chain
from glow.config import GlowConfig
from glow.flow import Glow
from tests.refusals import user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

WIDTH = 8
MIXING = np.random.default_rng(5).normal(size=(WIDTH, WIDTH)) + 0.5


def rows(count=300, seed=0):
    """Return correlated rows, float32 [count, 8]."""
    found = np.random.default_rng(seed).normal(size=(count, WIDTH)) @ MIXING
    return (found + 1).astype(np.float32)


TEXTS = [f"text {i}" for i in range(300)]
BY_TEXT = dict(zip(TEXTS, rows(), strict=True))


def encode(texts):
    """Return the rows of texts, and means of them for mixtures."""
    mean = np.mean([*BY_TEXT.values()], axis=0)
    return np.stack([BY_TEXT.get(text, mean) for text in texts])


def learned(data, method, **settings):
    return learning.learn(data, find_method(method), FitSettings(**settings))


@pytest.fixture
def untrained(monkeypatch):
    """Record the arguments of a flow's training instead of training it."""
    calls = []

    def fit(made, X, y=None, held_out=None, *, ends_early=True):
        calls.append(types.SimpleNamespace(calibrator=made, vectors=X, held_out=held_out))
        made.flow_ = Glow(GlowConfig(n_levels=1, depth=1), X.shape[1], seed=made.seed)
        made.config_ = made.flow_.config
        made.n_steps_ = 300
        made.losses_ = np.array([made.epochs], np.float32)
        made.held_out_losses_ = {}

    monkeypatch.setattr(FlowCalibrator, "fit", fit)
    return calls


# A passed object does not change.


class Logging(TransformerMixin, BaseEstimator):
    """A transformer that keeps rows in mind; it is not affine."""

    seen: typing.ClassVar[list] = []

    def fit(self, X, y=None):
        self.learned_ = {row.tobytes() for row in X}
        return self

    def transform(self, X):
        self.seen.append(len([row for row in np.float32(X) if row.tobytes() in self.learned_]))
        return np.tanh(X)


@pytest.mark.parametrize(
    "make",
    [
        lambda: QuantileTransformer(n_quantiles=50),
        lambda: PCA(3),
        lambda: Logging(),
        lambda: make_pipeline(StandardScaler(), QuantileTransformer(n_quantiles=20)),
        lambda: FlowCalibrator(epochs=2, batch_size=32, show_progress_bar=False),
    ],
)
def test_a_passed_object_is_neither_changed_nor_shared(make):
    passed = make()
    before = copy.deepcopy(vars(passed))
    first = calibrate(encode, TEXTS[:200], method=passed)
    expected = first.encode(TEXTS[:5])
    assert str(vars(passed)) == str(before)
    # Another use of the object, by hand or by a comparison, is none of the model's.
    if not isinstance(passed, FlowCalibrator):
        compare(encode, TEXTS[100:], [passed, "sn"])
    passed.fit(rows(seed=3))
    np.testing.assert_array_equal(first.encode(TEXTS[:5]), expected)


def test_a_calibrator_keeps_its_callbacks_and_loss():
    history = tf_keras.callbacks.History()
    passed = FlowCalibrator(epochs=2, callbacks=[history], loss=Glow.bits_per_dim)
    taken = find_method(passed).calibrator
    for one in (taken, cloned(taken)):
        assert one is not passed
        assert one.callbacks[0] is history
        assert one.loss is Glow.bits_per_dim


# A measure is of what is kept, learned without the held-out rows, and decides nothing.


def test_a_transformer_that_remembers_is_measured_on_rows_it_has_not_seen():
    Logging.seen.clear()
    calibrate(encode, TEXTS, method=Logging())
    held_out = len(learning.hold_out(TEXTS, FitSettings())[1])
    # The calls of transform that measure have as many rows as are held out, and know none.
    assert 0 in Logging.seen and held_out not in Logging.seen


def with_zeros():
    found = rows()
    found[::3] = 0
    return found


METHODS = ("auto", "whitening", "whitening-3", "soft-whitening-0.1", "sn", "natsv-1")
COMPOSED = ("sn+natsv-1", "whitening+flow", "flow")


@pytest.mark.parametrize("method", [*METHODS, *COMPOSED])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(with_zeros(), id="zeros"),
        pytest.param(np.repeat(rows(60), 3, axis=0), id="repeated"),
        # A fifth of 50 rows is held out, which leaves enough for all.
        pytest.param(rows(50), id="few"),
    ],
)
def test_no_measure_ends_a_fit(method, data, untrained):
    found = learned(data, method, dev_fraction=0.05)
    expected = learned(data, method, dev_fraction=0)
    assert found.maps[-1].output_size == expected.maps[-1].output_size
    if "flow" not in method:
        u = rows(9, seed=1)
        for one, other in zip(found.maps, expected.maps, strict=True):
            np.testing.assert_array_equal(one.forward(u), other.forward(u))


def test_zeros_are_in_no_measure(monkeypatch):
    monkeypatch.setattr(judgement, "_RESAMPLES", 20)
    change = learned(with_zeros(), "sn").history.change
    assert 0 < change.before.embeddings < len(learning.hold_out(range(200), FitSettings())[1]) + 1
    pairs = TEXTS[:60], ["unknown"] * 20 + TEXTS[60:100], [i % 6 for i in range(60)]

    def encode_known(texts):
        return np.stack([BY_TEXT.get(text, np.zeros(WIDTH)) for text in texts])

    with pytest.warns(UserWarning, match="pairs: 20 of 60 have a sentence whose embedding is zero"):
        model = calibrate(encode_known, TEXTS, method="natsv-1", pairs=pairs)
    assert model.history_.judgement.pairs == 40


@pytest.mark.parametrize("method", ["whitening", "whitening+flow"])
def test_rows_that_are_all_needed_are_not_held_out(method, untrained):
    # 70 rows are enough for 64 channels; 56 of them, without a fifth, are not.
    u = np.random.default_rng(0).normal(size=(70, 64)).astype(np.float32)
    with pytest.warns(UserWarning) as caught:
        found = learned(u, method, **({"batch_size": 8} if "flow" in method else {}))
    assert found.record.training.settings["held_out"] == 0
    assert found.record.training.settings["sentences"] == 70
    assert found.history.change is None
    said = [str(one.message) for one in caught if "fewer than twice" in str(one.message)]
    # It is said once, of what the user gave.
    assert len(said) == 1
    assert "found 70 different sentences" in said[0]
    with user_error("found 60 different sentences for whitening, expected more than the 64"):
        learned(u[:60], method, **({"batch_size": 8} if "flow" in method else {}))


def test_the_figures_of_auto_are_of_what_it_decided_on_all_rows():
    # 110 rows in 4 directions are enough to decide, and 88 of them are not.
    rng = np.random.default_rng(0)
    u = rng.normal(size=(110, 4)) @ rng.normal(size=(4, 32)) + 0.01 * rng.normal(size=(110, 32))
    u = (u + 3).astype(np.float32)
    found = learned(u, "auto")
    assert found.history.choice.startswith("whitened softly")
    assert found.history.change.after.mean_cosine < 0.5 * found.history.change.before.mean_cosine
    assert found.record.training.settings["choice"] == found.history.choice
    once = Auto().fit(u)
    again = once.decided().fit(u[:50])
    assert (again.decision_, again.choice_) == (once.decision_, "")
    assert Auto().fit(u[:50]).decision_ != once.decision_


# Only a map that is affine everywhere is an affine map.


class Clipped(TransformerMixin, BaseEstimator):
    """Clip at so many deviations of the learned rows."""

    def __init__(self, deviations, low=-np.inf):
        self.deviations = deviations
        self.low = low

    def fit(self, X, y=None):
        self.mean_, self.scale_ = X.mean(axis=0), X.std(axis=0)
        return self

    def transform(self, X):
        return np.clip((X - self.mean_) / self.scale_, self.low, self.deviations)


@pytest.mark.parametrize(
    ("transformer", "is_affine"),
    [
        (StandardScaler(), True),
        (RobustScaler(), True),
        (MaxAbsScaler(), True),
        (MinMaxScaler(), True),
        (PCA(3, whiten=True), True),
        (make_pipeline(StandardScaler(), PCA(4)), True),
        (Whitening(5), True),
        (MinMaxScaler(clip=True), False),
        (make_pipeline(PCA(4), MinMaxScaler(clip=True)), False),
        (make_pipeline(MinMaxScaler(clip=True), PCA(4)), False),
        (Clipped(6.0), False),
        (Clipped(np.inf, low=-6.0), False),
        (QuantileTransformer(n_quantiles=50), False),
        (Normalizer(), False),
        (KernelPCA(3, kernel="rbf"), False),
    ],
)
def test_affine_is_what_is_affine_beyond_the_rows_too(transformer, is_affine):
    u = rows()
    form = affine_form(transformer.fit(u), u)
    assert (form is not None) == is_affine
    if form is not None:
        far = 30 * rows(20, seed=9)
        expected = transformer.transform(far)
        found = (far - form[0]) @ form[1]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


# Equal names are the same method only for names.


def test_objects_that_look_alike_are_methods_of_their_own(untrained):
    flows = [FlowCalibrator(epochs=3), FlowCalibrator(epochs=4, seed=5)]
    found = compare(encode, TEXTS, ["sn", "sn", "flow", *flows, Logging(), Logging()])
    assert [row.method for row in found] == [
        "none",
        "sn",
        "flow",
        "FlowCalibrator(epochs=3)",
        "FlowCalibrator(epochs=4, seed=5)",
        "Logging()",
        "Logging() (2)",
    ]
    assert [row.history.losses.tolist() for row in found][3:5] == [[3.0], [4.0]]


def test_an_object_that_fails_is_left_out_of_a_comparison():
    with pytest.warns(UserWarning, match="LinearDiscriminantAnalysis.* is left out: .*TypeError"):
        found = compare(encode, TEXTS, [LinearDiscriminantAnalysis(), "sn"])
    assert [row.method for row in found] == ["none", "sn"]
    with user_error("fit: LinearDiscriminantAnalysis failed: TypeError"):
        calibrate(encode, TEXTS, method=LinearDiscriminantAnalysis())
    with user_error("methods: found none"):
        compare(encode, TEXTS, [])


# A method is a list of parts, each learned on what the one before returns.


def test_each_part_is_learned_on_what_the_one_before_returns(untrained):
    u = rows()
    found = learned(u, "sn+natsv-2+soft-whitening-0.5-3", dev_fraction=0)
    assert [one.output_size for one in found.maps] == [8, 8, 3]
    x = u
    for name, one in zip(("sn", "natsv-2", "soft-whitening-0.5-3"), found.maps, strict=True):
        (alone,) = learned(x, name, dev_fraction=0).maps
        np.testing.assert_array_equal(one.forward(x), alone.forward(x))
        x = np.asarray(one.forward(x))
    listed = learned(u, ["sn", "natsv-2+soft-whitening-0.5-3"], dev_fraction=0)
    assert listed.record == found.record
    own = learned(u, [PCA(4), FlowCalibrator(epochs=2, batch_size=32)])
    assert [one.output_size for one in own.maps] == [4, 4]
    before = own.maps[0].forward(u)
    assert {row.tobytes() for row in untrained[-1].vectors} < {
        row.tobytes() for row in before.numpy()
    }
    for wrong in ("flow+sn", ["flow", "flow"], [FlowCalibrator(), PCA(2)]):
        with user_error("expected a flow as the last method alone"):
            find_method(wrong)


# Losses are in the unit that they say.


@pytest.mark.parametrize("method", ["flow", "sn+soft-whitening-0.1+flow"])
def test_losses_are_the_bits_of_the_encoders_space(method):
    u = rows(600)
    seen = []
    watch = tf_keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append(logs))
    found = learning.learn(
        u,
        find_method(method),
        FitSettings(epochs=1, batch_size=32, dev_fraction=0.1),
        callbacks=[watch],
    )
    history = found.history
    assert history.unit == "bits per dimension"
    _, chosen = learning.hold_out([row.tobytes() for row in u], FitSettings(dev_fraction=0.1))
    bits = Chain(found.maps, WIDTH).bits_per_dim(u[chosen]).numpy().mean()
    assert [*history.held_out_losses.values()][-1] == pytest.approx(bits, abs=1e-3)
    # The callbacks see the same numbers.
    assert [one["val_loss"] for one in seen] == [*history.held_out_losses.values()]


@pytest.mark.parametrize(
    ("method", "unit"),
    [
        ("whitening-3+flow", "bits per dimension behind whitening-3"),
        ("natsv-1+flow", "bits per dimension behind natsv-1"),
        ([QuantileTransformer(n_quantiles=20), "flow"], "behind QuantileTransformer"),
        (FlowCalibrator(loss=lambda flow, u, step: flow.bits_per_dim(u)), "loss of its own"),
    ],
)
def test_losses_of_another_space_have_another_unit(method, unit, untrained):
    assert unit in learned(rows(), method).history.recorded_losses.unit


# A setting is used, or refused by its name.

CHANGED = {
    "flow_model_config": "config_l2_d3_w32",
    "epochs": 3.0,
    "batch_size": 32,
    "learning_rate": 0.01,
    "seed": 7,
    "dev_fraction": 0.4,
}
USED_BY_MAPS = {"seed", "dev_fraction"}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize(
    ("method", "used"),
    [
        ("flow", {*CHANGED}),
        ("sn+flow", {*CHANGED}),
        ("whitening", USED_BY_MAPS),
        (PCA(3), USED_BY_MAPS),
        (FlowCalibrator(epochs=2, batch_size=32, seed=3), {"dev_fraction"}),
    ],
)
def test_a_setting_is_used_or_refused_by_name(name, method, used, untrained):
    options = {name: CHANGED[name]}
    if name not in used:
        with user_error(f"{name}: found {CHANGED[name]} with ", "has no use for it"):
            calibrate(encode, TEXTS, method=method, **options)
        with user_error(f"{name}: found {CHANGED[name]} with ", "has no use for it"):
            compare(encode, TEXTS, [method], settings=FitSettings(**options))
        return
    changed, default = (calibrate(encode, TEXTS, method=method, **one) for one in (options, {}))
    if method in ("flow", "sn+flow") and name not in USED_BY_MAPS:
        trained = [one.calibrator for one in untrained]
        attribute = {"flow_model_config": "config"}.get(name, name)
        assert getattr(trained[0], attribute) != getattr(trained[1], attribute)
    elif name == "seed":
        assert changed.record.training.seed == 7
    else:
        counts = [one.record.training.settings["held_out"] for one in (changed, default)]
        assert counts == [120, 60]


def test_a_calibrators_own_settings_are_recorded(untrained):
    model = calibrate(encode, TEXTS[:50], method=FlowCalibrator(batch_size=16, seed=77, epochs=4))
    assert model.record.training.seed == 77
    assert model.record.training.settings["batch_size"] == 16


# Each setting is declared once.


def test_the_keywords_of_fit_are_those_of_the_settings():
    hints = typing.get_type_hints(FitKeywords)
    fields = {field.name: field for field in dataclasses.fields(FitSettings)}
    assert [*hints] == [name for name in fields if name != "method"]
    # A path stands for its text.
    expected = {name: field.type for name, field in fields.items()}
    expected["flow_model_config"] = str | os.PathLike
    assert hints == {name: expected[name] for name in hints}
    for function in (BertFlow.fit, calibrate):
        parameters = inspect.signature(function).parameters
        assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        for name in hints:
            assert parameters[name].default == fields[name].default
    keywords = {
        name
        for name, one in inspect.signature(CalibratedEncoder.fit).parameters.items()
        if one.kind is one.KEYWORD_ONLY
    }
    assert keywords == {*typing.get_type_hints(FitOptions, None, {"Loss": object, "Pairs": object})}
    with user_error("learning_rat: found an argument that calibrate does not have; did you mean"):
        calibrate(encode, TEXTS, learning_rat=1)
