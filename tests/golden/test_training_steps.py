"""Whole training steps against those of the TF1 code (train_*.npz)."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.original.settings import LossSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from glow.config import GlowConfig
from glow.flow import Glow
from glow.optimizer import AdamWeightDecay, WarmupLinearDecay
from glow.tf1_checkpoint import assign_tf1_variables, tf1_variables

RUNS = (
    *(
        "train_flow_unsupervised",
        "train_flow_semi_supervised",
        "train_nli_siamese",
        "train_sts_regression_l2",
    ),
    *(
        "train_flow_without_its_loss",
        "train_nli_with_flow",
        "train_low_dim_l2_flow",
        "train_schedule_to_its_end",
    ),
    "train_num_examples_without_flow",
)


def golden_run(golden_dir, name):
    settings = json.loads((golden_dir / f"{name}.json").read_text())
    with np.load(golden_dir / f"{name}.npz") as arrays:
        return settings, dict(arrays)


def build(settings, arrays, source):
    """The model of a golden run at its start, and its optimisers."""
    flags = settings["flags"]
    frozen = flags["num_examples"] == 0
    encoder = SentenceEncoder(source, flags["sentence_embedding_type"], trainable=not frozen)
    flow = None
    if flags["flow"]:
        flow = Glow(GlowConfig.load(flags["flow_model_config"]), encoder.embedding_size, seed=0)
        start = {
            name.removeprefix("var/"): value
            for name, value in arrays.items()
            if name.startswith("var/bert/flow")
        }
        assign_tf1_variables(flow, start)
    model = SiameseBertFlow(
        encoder,
        flow,
        num_labels=None if settings["is_regression"] else 3,
        low_dim=flags.get("low_dim", -1),
        losses=LossSettings(
            flags["num_examples"], flags.get("l2_penalty", -1.0), flags["flow_loss"]
        ),
    )
    if model.output_weights is not None:
        model.output_weights.assign(arrays["var/loss/output_weights"])
    schedule = WarmupLinearDecay(
        settings["learning_rate"], settings["num_train_steps"], settings["num_warmup_steps"]
    )
    model.compile(
        AdamWeightDecay(schedule),
        AdamWeightDecay(settings["flow_learning_rate"]) if flags["flow_loss"] else None,
    )
    return model


def model_inputs(batch, numbered=True):
    """Return the inputs of the model from a golden batch.

    Where `numbered`, BERT is trained in its fused form, else as the SavedModel has it.
    """
    ids, mask = np.stack([batch[0], batch[2]], axis=1), np.stack([batch[1], batch[3]], axis=1)
    occurrence = tf.reshape(tf.range(ids.shape[0] * 2, dtype=tf.int64), [-1, 2])
    return {
        "input_word_ids": tf.constant(ids),
        "input_mask": tf.constant(mask),
        "input_type_ids": tf.zeros_like(ids),
        **({"occurrence": occurrence} if numbered else {}),
    }


@pytest.fixture(
    scope="module", params=[*((run, True) for run in RUNS), ("train_nli_siamese", False)]
)
def trained(request, golden_dir, tiny_source):
    """A golden run, its model and logs, and the first variables."""
    settings, arrays = golden_run(golden_dir, request.param[0])
    model = build(settings, arrays, tiny_source)
    before = {name: variable.numpy() for name, variable in model.encoder.variables_by_name.items()}
    step = tf.function(model.train_step, autograph=False)
    logs = []
    for batch, labels in zip(arrays["batches"], arrays["labels"], strict=True):
        data = model_inputs(batch, numbered=request.param[1]), tf.constant(labels)
        logs.append({name: float(value) for name, value in step(data).items()})
    return settings, arrays, model, logs, before


def test_losses_of_twelve_steps_are_those_of_tf1(trained, deviation):
    settings, arrays, _, logs, _ = trained
    losses = np.array([log["supervised_loss"] for log in logs])
    if settings["flags"]["num_examples"] == 0:
        np.testing.assert_array_equal(losses, 0.0)
        np.testing.assert_array_equal(arrays["losses"], 0.0)
    else:
        deviation(
            "twelve training steps, supervised losses",
            np.max(np.abs(losses / arrays["losses"] - 1)),
            5e-5,
        )
    if settings["flags"]["flow"]:
        flow_losses = np.array([log["flow_loss"] for log in logs])
        worst = np.max(np.abs(flow_losses / arrays["flow_losses"] - 1))
        deviation("twelve training steps, flow losses", worst, 1e-5)


def test_embeddings_after_twelve_steps_are_those_of_tf1(trained, deviation):
    settings, arrays, model, _, _ = trained
    outputs = model(model_inputs(arrays["batches"][-1]))
    # After half of all weights have been moved by one unit in the last place, a run ends this far
    # from itself (four trials): embeddings 1e-5, cosines 1.4e-6; with a penalty 3.8e-4 and 4.3e-5,
    # because Adam without bias correction makes a whole step of a gradient's rounding. The limits
    # are some five times as large.
    is_penalised = settings["flags"].get("l2_penalty", -1) > 0
    runs, most, most_cosine = (
        ("penalised runs", 2e-3, 2e-4) if is_penalised else ("runs", 5e-5, 1e-5)
    )
    for name in ("embedding_a", "embedding_b"):
        expected = arrays[f"final/{name}"]
        worst = np.abs(outputs[name] - expected).max() / np.abs(expected).max()
        deviation(f"twelve training steps, final embeddings of {runs}", worst, most)
    worst = np.abs(outputs["cos_similarity"] - arrays["final/cos_similarity"]).max()
    deviation(f"twelve training steps, final cosines of {runs}, absolute", worst, most_cosine)


def test_every_variable_after_twelve_steps_is_that_of_tf1(trained, golden_dir, deviation):
    _, arrays, model, _, _ = trained
    start = tf.train.load_checkpoint(str(golden_dir / "bert_tiny" / "bert_model.ckpt"))
    variables = model.encoder.variables_by_name
    found = {name: variable.numpy() for name, variable in variables.items()}
    if model.flow is not None:
        found |= tf1_variables(model.flow)
    if model.output_weights is not None:
        found["loss/output_weights"] = model.output_weights.numpy()
    expected = {
        name.removeprefix("final_var/"): arrays[name]
        for name in arrays
        if name.startswith("final_var/")
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        before = arrays[f"var/{name}"] if f"var/{name}" in arrays else start.get_tensor(name)
        way = np.linalg.norm(value - before)
        if way == 0:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
        elif name.endswith("/key/bias"):
            # Adds the same to all of a query's scores, so its gradient is zero but for rounding,
            # and so is its way.
            deviation(
                "twelve training steps, biases of the keys, absolute",
                np.abs(found[name] - value).max(),
                2e-5,
            )
        else:
            what = "twelve training steps, variables, relative to the way they went"
            deviation(what, np.linalg.norm(found[name] - value) / way, 2e-4)


def test_encoder_moves_only_where_a_label_counts(trained):
    settings, _, model, _, before = trained
    moved = [
        n
        for n, v in model.encoder.variables_by_name.items()
        if not np.array_equal(v.numpy(), before[n])
    ]
    if settings["flags"]["num_examples"] == 0:
        assert not moved
    else:
        # A variable without a gradient keeps its value: the pooler under an average, the last layer
        # under an average of the one before it.
        idle = {name for name in before if name not in moved}
        without = {"cls": (), "avg-last-last-2": ("bert/pooler/", "bert/encoder/layer_2/")}
        prefixes = without.get(settings["flags"]["sentence_embedding_type"], ("bert/pooler/",))
        assert idle == {name for name in before if name.startswith(prefixes)}
