"""BERT in training: the SavedModel's outputs and gradients without dropout, at the tokens alone."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.dropout import DropoutRates
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.trainable_bert import TrainableBert, has_gradients_of, proved_before

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 9, 4, 3], [2, 10, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
}
SEEDS = tf.constant([[1, 4], [1, 9]], tf.int64)


@pytest.fixture(scope="module", params=[("tiny_source", True), ("small_source", False)], ids=["tanh", "erf"])
def both(request):
    """An encoder and its `TrainableBert`, for either GELU."""
    name, approximate = request.param
    encoder = SentenceEncoder(request.getfixturevalue(name), "avg", trainable=True)
    rates = DropoutRates(0.1, 0.2)
    return encoder, TrainableBert(encoder.variables_by_name, approximate_gelu=approximate, rates=rates)


def test_without_seeds_the_outputs_are_the_saved_models_and_0_at_padding(both):
    encoder, trainable = both
    found, expected = trainable.with_dropout(INPUTS, None), encoder._saved_model(INPUTS)
    words = INPUTS["input_mask"].numpy().astype(bool)
    for a, b in zip(found["encoder_outputs"], expected["encoder_outputs"], strict=True):
        np.testing.assert_allclose(a.numpy()[words], b.numpy()[words], atol=3e-6)
        assert not a.numpy()[~words].any()
    np.testing.assert_allclose(found["pooled_output"], expected["pooled_output"], atol=3e-6)


def test_gradients_are_the_saved_models_and_another_gelu_is_told_apart(both):
    encoder, trainable = both
    variables = encoder.variables_by_name
    assert has_gradients_of(encoder._saved_model, trainable, variables)
    other = TrainableBert(variables, approximate_gelu=not trainable.approximate_gelu, rates=DropoutRates())
    assert not has_gradients_of(encoder._saved_model, other, variables)


def gradients_of(trainable, inputs, seeds):
    """Gradients of all variables of a sum over the outputs at the tokens, by name."""
    mask = tf.cast(inputs["input_mask"], tf.float32)[:, :, tf.newaxis]
    with tf.GradientTape() as tape:
        outputs = trainable.with_dropout(inputs, seeds)
        total = sum(tf.reduce_sum(tf.sin(state * 3.0) * mask) for state in outputs["encoder_outputs"])
    return tape.gradient(total, trainable._variables)


def test_padding_changes_neither_outputs_nor_gradients(both):
    _, trainable = both
    padded = {name: tf.pad(value, [[0, 0], [0, 4]]) for name, value in INPUTS.items()}
    found, expected = trainable.with_dropout(padded, SEEDS), trainable.with_dropout(INPUTS, SEEDS)
    np.testing.assert_allclose(found["sequence_output"][:, :5], expected["sequence_output"], atol=2e-6)
    gradients, others = gradients_of(trainable, padded, SEEDS), gradients_of(trainable, INPUTS, SEEDS)
    for name, gradient in others.items():
        if gradient is not None:
            value, other = (tf.convert_to_tensor(each) for each in (gradient, gradients[name]))
            np.testing.assert_allclose(other, value, atol=2e-5 * max(1.0, np.abs(value).max()), err_msg=name)


def test_with_dropout_the_gradient_is_the_slope_of_what_the_same_seeds_give(both):
    _, trainable = both
    name = "transformer/layer_0/self_attention/value/bias"
    variable, mask = trainable._variables[name], tf.cast(INPUTS["input_mask"], tf.float32)[:, :, tf.newaxis]

    def total():
        outputs = trainable.with_dropout(INPUTS, SEEDS)
        return sum(float(tf.reduce_sum(tf.sin(state * 3.0) * mask)) for state in outputs["encoder_outputs"])

    gradient = tf.convert_to_tensor(gradients_of(trainable, INPUTS, SEEDS)[name]).numpy()
    direction = np.cos(np.arange(gradient.size)).reshape(gradient.shape).astype(np.float32)
    before = variable.numpy()
    values = []
    for step in (0.01, -0.01):
        variable.assign(before + step * direction)
        values.append(total())
    variable.assign(before)
    assert (values[0] - values[1]) / 0.02 == pytest.approx(float(np.sum(gradient * direction)), rel=0.02, abs=0.01)


def test_frozen_it_computes_the_same(both):
    _, trainable = both
    options = {"approximate_gelu": trainable.approximate_gelu, "rates": trainable.rates}
    frozen = TrainableBert(trainable._variables, **options, frozen=True)
    found, expected = (each.with_dropout(INPUTS, SEEDS)["sequence_output"] for each in (frozen, trainable))
    np.testing.assert_allclose(found, expected, atol=5e-6)


def test_every_place_is_dropped_once(both, monkeypatch):
    _, trainable = both
    seen = []
    monkeypatch.setattr(trainable, "_dropout", lambda seeds, mask: lambda x, site: seen.append(site) or x)
    trainable.with_dropout(INPUTS, SEEDS)
    layers = range(trainable.num_layers)
    expected = [("attention", i) for i in layers] + [("hidden", i) for i in range(2 * len(layers) + 1)]
    assert sorted(seen) == expected


def test_a_proof_is_kept_for_the_same_graph_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "cache"))
    graph = tmp_path / "saved_model.pb"
    answers = iter([False, True, True])

    def prove():
        return next(answers)

    graph.write_bytes(b"one")
    assert [proved_before(graph, prove) for _ in range(3)] == [False, True, True]
    graph.write_bytes(b"two")
    assert proved_before(graph, prove)
    assert next(answers, None) is None


@pytest.mark.parametrize("name", ["cache", "a" * 300])
def test_where_a_proof_cannot_be_kept_it_still_counts(tmp_path, monkeypatch, name):
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / name))
    (tmp_path / "saved_model.pb").write_bytes(b"one")
    assert proved_before(tmp_path / "saved_model.pb", lambda: True)


def test_every_place_has_a_mask_of_its_own_and_its_kinds_rate(both):
    _, trainable = both
    width, heads, _ = trainable._variables["transformer/layer_0/self_attention/query/kernel"].shape
    dropped = trainable._dropout(SEEDS, INPUTS["input_mask"])
    ones = {"hidden": tf.ones([8, width]), "attention": tf.ones([2, heads, 5, 5])}
    places = {"hidden": 2 * trainable.num_layers + 1, "attention": trainable.num_layers}
    for kind, rate in (("hidden", 0.1), ("attention", 0.2)):
        kept = [dropped(ones[kind], (kind, i)).numpy() for i in range(places[kind])]
        assert {round(float(x), 5) for x in np.unique(kept)} == {0.0, round(1 / (1 - rate), 5)}
        assert len({each.tobytes() for each in kept}) == places[kind]
