import numpy as np
import pytest
import tensorflow as tf

from glow.config import GlowConfig
from glow.flow import Glow
from glow.tf1_checkpoint import assign_tf1_variables, load_tf1_checkpoint, tf1_variables

REVERSED = GlowConfig(n_levels=2, depth=1, coupling_width=4)
LEARNED = GlowConfig(n_levels=2, depth=1, coupling_width=4, coupling="affine", permutation=False)
STEP = "bert/flow/revnet_0/revnet_step_0"


def assert_equal_variables(found, expected):
    for a, b in zip(found.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["config_l2_d2_w32", "affine_1x1_gatu"])
def test_names_and_shapes_are_the_originals(name, golden_dir):
    golden = np.load(golden_dir / f"flow_{name}.npz")
    flow = Glow(GlowConfig.from_file(golden_dir / f"flow_{name}.json"), 32, seed=0)
    original = {key[4:]: golden[key] for key in golden.files if key.startswith("var/")}
    assign_tf1_variables(flow, original)
    found = tf1_variables(flow)
    assert found.keys() == original.keys()
    for key, value in original.items():
        np.testing.assert_array_equal(found[key], value)
        assert found[key].dtype == value.dtype


@pytest.mark.parametrize("config", [REVERSED, LEARNED])
def test_checkpoint_round_trip(config, tmp_path):
    flow = Glow(config, 8, seed=1)
    values = tf1_variables(flow)
    # What the original's checkpoints hold besides: the encoder, the optimiser's moments, the step.
    values["bert/embeddings/word_embeddings"] = np.zeros([3, 2], np.float32)
    values[f"{STEP}/actnorm/actnorm_center/b/adam_m"] = np.zeros([1, 1, 1, 8], np.float32)
    values["global_step"] = np.int64(7)
    path = str(tmp_path / "model.ckpt-7")
    names = list(values)
    tf.raw_ops.SaveV2(
        prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), tensors=[values[name] for name in names]
    )
    restored = Glow(config, 8, seed=2)
    load_tf1_checkpoint(restored, path)
    assert_equal_variables(restored, flow)


def test_prefix_is_what_stands_before_flow():
    flow = Glow(REVERSED, 8, seed=1)
    values = tf1_variables(flow, prefix="")
    assert "flow/revnet_0/revnet_step_0/actnorm/actnorm_center/b" in values
    restored = Glow(REVERSED, 8, seed=2, name="other")
    assign_tf1_variables(restored, values, prefix="")
    assert_equal_variables(restored, flow)


def test_stored_reversal_may_be_absent():
    values = {k: v for k, v in tf1_variables(Glow(REVERSED, 8, seed=1)).items() if not k.endswith("invertible/w")}
    assert len(values) < len(tf1_variables(Glow(REVERSED, 8, seed=1)))
    assign_tf1_variables(Glow(REVERSED, 8, seed=2), values)


def missing(values):
    del values[f"{STEP}/actnorm/actnorm_center/b"]


def left_over(values):
    values[f"{STEP}/actnorm/actnorm_center/c"] = np.zeros(8)


def transposed(values):
    values[f"{STEP}/additive/nn/zeros/W"] = values[f"{STEP}/additive/nn/zeros/W"].reshape([4, 4])


def not_finite(values):
    values[f"{STEP}/actnorm/actnorm_scale/logs"] = np.full([1, 1, 1, 8], np.nan)


def other_permutation(values):
    values[f"{STEP}/invertible/w"] = np.eye(8)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (missing, "actnorm_center/b: missing"),
        (left_over, "actnorm_center/c: left over"),
        (transposed, r"zeros/W: found shape \(4, 4\), expected \(1, 1, 4, 4\)"),
        (not_finite, "actnorm_scale/logs: holds a value that is not finite"),
        (other_permutation, "invertible/w: .* expected the reversal of 8"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_assigned(damage, message):
    flow = Glow(REVERSED, 8, seed=1)
    values = tf1_variables(Glow(REVERSED, 8, seed=2))
    damage(values)
    with pytest.raises(ValueError, match=f"{STEP}/.*{message}|{STEP}/{message}"):
        assign_tf1_variables(flow, values)
    assert_equal_variables(flow, Glow(REVERSED, 8, seed=1))


def test_a_checkpoint_of_another_config_is_refused():
    with pytest.raises(ValueError, match="missing"):
        assign_tf1_variables(Glow(LEARNED, 8, seed=1), tf1_variables(Glow(REVERSED, 8, seed=2)))


def test_an_absent_checkpoint_is_named(tmp_path):
    with pytest.raises(ValueError, match="nothing-here: not a readable checkpoint"):
        load_tf1_checkpoint(Glow(REVERSED, 8, seed=1), str(tmp_path / "nothing-here"))
