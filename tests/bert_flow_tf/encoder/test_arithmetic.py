"""Which arithmetic is faster, as measured, and how long that is known."""

import json

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder import arithmetic
from bert_flow_tf.encoder.arithmetic import LayerSeconds, multiplies_bfloat16, seconds_of_layer
from tests.bert_flow_tf.encoder.test_fused_bert import INPUTS

SLOWER, FASTER = LayerSeconds(0.004, 0.006), LayerSeconds(0.006, 0.004)


@pytest.fixture
def variables(encoder):
    return encoder.variables_by_name


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Folder of the cache's files on arithmetic."""
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path))
    return tmp_path / "arithmetic"


@pytest.fixture
def measured(cache, monkeypatch):
    """list of what the next measurements give, each used once."""
    left = []
    monkeypatch.setattr(arithmetic, "seconds_of_layer", lambda variables: left.pop(0))
    return left


def test_both_compute_the_first_layer_and_only_one_rounds(encoder, variables):
    expected = encoder._find_fused()(INPUTS)["encoder_outputs"][0].numpy()
    exact, rounded = (arithmetic._layer(variables, dtype)(INPUTS).numpy() for dtype in (tf.float32, tf.bfloat16))
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-4)
    assert 1e-4 < np.abs(rounded - expected).max() < 0.1
    seconds = seconds_of_layer(variables)
    assert min(seconds.float32, seconds.bfloat16) > 0 and max(seconds.float32, seconds.bfloat16) < 1


@pytest.mark.parametrize("seconds, chosen", [(SLOWER, False), (FASTER, True)])
def test_the_faster_is_chosen_said_with_its_figures_and_kept(variables, cache, measured, caplog, seconds, chosen):
    measured.append(seconds)
    logging.set_verbosity(logging.INFO)
    try:
        assert [multiplies_bfloat16(variables) for _ in range(3)] == [chosen] * 3
    finally:
        logging.set_verbosity(logging.WARNING)
    assert len([*cache.glob("*.json")]) == 1
    said = f"products in {'bfloat16' if chosen else 'float32'}, the faster on this machine"
    assert [said in message for message in caplog.messages] == [True] * 3
    assert "4.00 ms in" in caplog.text and "6.00 ms in" in caplog.text


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace("0.004", "-0.004"),
        lambda text: text.replace("0.004", "null"),
        lambda text: text.replace("seconds", "minutes"),
        lambda text: json.dumps(json.loads(text) | {"format_version": 1}),
    ],
)
def test_a_damaged_entry_is_measured_again(variables, cache, measured, caplog, damage):
    measured += [SLOWER, FASTER]
    multiplies_bfloat16(variables)
    (path,) = cache.glob("*.json")
    whole = path.read_text()
    assert damage(whole) != whole
    path.write_text(damage(whole))
    assert multiplies_bfloat16(variables)
    (message,) = caplog.messages
    assert message.startswith(f"{path}: ") and message.endswith("; measured again")
    assert json.loads(path.read_text()) == json.loads(whole) | {"seconds": {"float32": 0.006, "bfloat16": 0.004}}


def test_other_kernels_threads_cpus_and_shapes_are_measured_on_their_own(variables, measured, monkeypatch):
    wider = variables | {"transformer/layer_0/intermediate/kernel": tf.zeros([32, 96])}
    changes = [
        lambda: monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2"),
        lambda: monkeypatch.setattr(arithmetic, "usable_cpus", lambda: 99),
        lambda: monkeypatch.setattr(arithmetic, "cpu_fields", lambda: {"model name": "Another"}),
        lambda: monkeypatch.setattr(arithmetic, "bfloat16_units", lambda: ["bf17"]),
        lambda: monkeypatch.setattr(arithmetic.tf, "__version__", "3.0"),
    ]
    measured += [SLOWER] + [FASTER] * (1 + len(changes))
    assert not multiplies_bfloat16(variables)
    assert multiplies_bfloat16(wider)
    for change in changes:
        change()
        assert multiplies_bfloat16(variables)
    assert measured == []


@pytest.mark.parametrize("name", ["file", "a" * 300])
def test_a_cache_that_cannot_be_written_to_hinders_nothing(variables, measured, tmp_path, monkeypatch, caplog, name):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / name))
    measured += [FASTER, SLOWER]
    assert multiplies_bfloat16(variables)
    assert not multiplies_bfloat16(variables)
    assert "what is measured of bfloat16 is not kept" in caplog.text
