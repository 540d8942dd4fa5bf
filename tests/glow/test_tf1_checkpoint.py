import numpy as np
import pytest

from glow.config import GlowConfig
from glow.flow import Glow
from glow.tf1_checkpoint import assign_tf1_variables, tf1_variables

REVERSED = GlowConfig(n_levels=2, depth=1, coupling_width=4)
LEARNED = GlowConfig(n_levels=2, depth=1, coupling_width=4, coupling="affine", permutation=False)
STEP = "bert/flow/revnet_0/revnet_step_0"


def assert_equal_variables(found, expected):
    for a, b in zip(found.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(a, b)


def test_names_and_shapes_are_the_originals(golden_dir):
    for name in ("config_l2_d2_w32", "affine_1x1_gatu"):
        with np.load(golden_dir / f"flow_{name}.npz") as golden:
            original = {key[4:]: golden[key] for key in golden.files if key.startswith("var/")}
        flow = Glow(GlowConfig.load(golden_dir / f"flow_{name}.json"), 32, seed=0)
        assign_tf1_variables(flow, original)
        found = tf1_variables(flow)
        assert {key: value.dtype for key, value in found.items()} == {
            key: v.dtype for key, v in original.items()
        }
        np.testing.assert_equal(found, original)


@pytest.mark.parametrize("config", [REVERSED, LEARNED])
def test_there_and_back_gives_the_same_flow(config):
    flow = Glow(config, 8, seed=1)
    values = tf1_variables(flow)
    # What the original's checkpoints hold besides: the encoder, the optimiser's moments, the step.
    values["bert/embeddings/word_embeddings"] = np.zeros([3, 2], np.float32)
    values[f"{STEP}/actnorm/actnorm_center/b/adam_m"] = np.zeros([1, 1, 1, 8], np.float32)
    values["global_step"] = np.int64(7)
    restored = Glow(config, 8, seed=2)
    assign_tf1_variables(restored, values)
    assert_equal_variables(restored, flow)


def test_stored_reversal_may_be_absent():
    values = tf1_variables(Glow(REVERSED, 8, seed=1))
    stored = [name for name in values if name.endswith("invertible/w")]
    assert len(stored) == 2
    for name in stored:
        del values[name]
    assign_tf1_variables(Glow(REVERSED, 8, seed=2), values)


def test_flow_of_another_configuration_names_the_one_that_fits():
    wide = tf1_variables(Glow(GlowConfig.load("config_l2_d3_w32"), 8, seed=1))
    narrow = Glow(GlowConfig.load("config_l2_d3_w16"), 8, seed=1)
    with pytest.raises(
        ValueError, match=r"found shape .*32.*expected .*16.*; config_l2_d3_w32 fits$"
    ):
        assign_tf1_variables(narrow, wide)
    with pytest.raises(ValueError, match=r"missing, .*; config_l2_d3_w32 fits$"):
        assign_tf1_variables(Glow(GlowConfig.load("config_l3_d3_w32"), 8, seed=1), wide)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("actnorm/actnorm_center/b", None, "missing"),
        ("actnorm/actnorm_center/c", np.zeros(8), "unexpected"),
        ("additive/nn/zeros/W", np.zeros([4, 4]), r"found shape \[4, 4\], expected \[1, 1, 4, 4\]"),
        ("actnorm/actnorm_scale/logs", np.full([1, 1, 1, 8], np.nan), "found NaN or infinity"),
        ("invertible/w", np.eye(8), ".* expected the reversal of 8"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_assigned(name, value, message):
    flow = Glow(REVERSED, 8, seed=1)
    values = tf1_variables(Glow(REVERSED, 8, seed=2)) | {f"{STEP}/{name}": value}
    values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(ValueError, match=f"{STEP}/{name}: {message}"):
        assign_tf1_variables(flow, values)
    assert_equal_variables(flow, Glow(REVERSED, 8, seed=1))
