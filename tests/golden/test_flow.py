"""The flow against the TF1 code's values (flow_*.npz)."""

import numpy as np
import pytest
import tensorflow as tf

from glow.config import GlowConfig
from glow.flow import Glow
from glow.optimizer import AdamWeightDecay, apply_clipped
from glow.tf1_checkpoint import assign_tf1_variables, tf1_variables

NAMES = ["config_l2_d2_w32", "config_l2_d3_w32", "config_l3_d3_w32", "affine_1x1_gatu"]


def distance(found, expected):
    """‖found − expected‖ / ‖expected‖."""
    return np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected)


def below(golden, folder):
    return {key[len(folder) :]: golden[key] for key in golden.files if key.startswith(folder)}


@pytest.fixture(params=NAMES)
def case(request, golden_dir):
    """(flow with the original's variables, golden values)."""
    golden = np.load(golden_dir / f"flow_{request.param}.npz")
    flow = Glow(
        GlowConfig.load(golden_dir / f"flow_{request.param}.json"),
        golden["x"].shape[1],
        seed=0,
    )
    assign_tf1_variables(flow, below(golden, "var/"))
    return flow, golden


def test_latents_losses_and_inverse(case, deviation):
    flow, golden = case
    z, bits_per_dim = flow.forward_and_bits_per_dim(golden["x"])
    deviation("flow, latent z", distance(z, golden["z"]), 2e-6)
    assert bits_per_dim.shape == golden["loss_per_example"].shape
    deviation(
        "flow, loss of each example", distance(bits_per_dim, golden["loss_per_example"]), 2e-6
    )
    deviation("flow, back from z to x", distance(flow.inverse(tf.identity(z)), golden["x"]), 1e-4)


def test_gradients(case, deviation):
    flow, golden = case
    expected = below(golden, "grad/bert/")
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(flow.bits_per_dim(golden["x"]))
    gradients = dict(
        zip(
            (v.name[:-2] for v in flow.trainable_variables),
            tape.gradient(loss, flow.trainable_variables),
            strict=True,
        )
    )
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        deviation(
            "flow, gradient of each variable",
            distance(np.ravel(gradient), np.ravel(expected[name])),
            2e-5,
        )
    norm = tf.linalg.global_norm(list(gradients.values()))
    deviation("flow, gradients' global norm", distance(norm, golden["grad_global_norm"]), 1e-5)


def test_five_steps_of_the_optimiser(case, deviation):
    flow, golden = case
    variables = list(flow.trainable_variables)
    optimizer = AdamWeightDecay(1e-3)
    optimizer.build(variables)
    losses = []
    for batch in golden["train_batches"]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(flow.bits_per_dim(batch))
        apply_clipped(optimizer, tape.gradient(loss, variables), variables)
        losses.append(float(loss))
    worst = np.max(np.abs(losses / golden["train_losses"] - 1))
    deviation("flow, losses of five optimiser steps", worst, 2e-5)
    z, bits_per_dim = flow.forward_and_bits_per_dim(golden["x"])
    deviation(
        "flow, z after five steps", distance(z, golden["z_after_training"].reshape(z.shape)), 2e-5
    )
    worst = np.max(np.abs(bits_per_dim / golden["loss_after_training"] - 1))
    deviation("flow, losses of five optimiser steps", worst, 2e-5)


def test_data_dependent_initialisation(case, deviation):
    flow, golden = case
    flow.initialize_from_data(golden["x"])
    found = tf1_variables(flow)
    expected = below(golden, "ddi_var/")
    assert expected
    for name, value in expected.items():
        deviation(
            "flow, variables after data-dependent initialisation",
            np.abs(found[name] - value).max(),
            1e-5,
        )
    for name in found.keys() - expected.keys():
        np.testing.assert_array_equal(found[name], golden[f"var/{name}"])
    what = "flow, z and loss after data-dependent initialisation"
    deviation(what, distance(flow.forward(golden["x"]), golden["z_after_ddi"]), 1e-5)
    deviation(what, distance(flow.bits_per_dim(golden["x"]), golden["loss_after_ddi"]), 1e-5)
