"""Encoders written again with other weights."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.encoder_folder import write_with_weights
from bert_flow_tf.encoder.convert.from_checkpoint import convert_run, run_checkpoint
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.errors import UserError


@pytest.fixture(scope="module")
def variables(small_source):
    encoder = SentenceEncoder(small_source, "cls", trainable=True)
    return {name: variable.numpy() for name, variable in encoder.variables_by_name.items()}


def test_exported_encoder_computes_with_the_new_weights(small_source, variables, tmp_path):
    halved = {name: value / 2 for name, value in variables.items()}
    write_with_weights(tmp_path, small_source, halved, {"kind": "exported"})
    source = resolve_encoder(bert_hub=tmp_path)
    exported = SentenceEncoder(source, "cls", trainable=True)
    for name, variable in exported.variables_by_name.items():
        np.testing.assert_array_equal(variable, halved[name])
    reference = SentenceEncoder(small_source, "cls", trainable=True)
    for name, variable in reference.variables_by_name.items():
        variable.assign(halved[name])
    inputs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tf.ones([2, 4], tf.int32))
    np.testing.assert_array_equal(exported(inputs), reference(inputs))
    assert len(exported.trainable_variables) == len(variables)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda v: v.pop("pooler_transform/bias"),
            r"variable pooler_transform/bias: missing",
        ),
        (lambda v: v.update({"pooler_transform/bias": np.full(8, np.inf)}), r"pooler_transform/bias holds NaN"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_nothing_is_written(small_source, variables, tmp_path, change, message):
    changed = dict(variables)
    change(changed)
    with pytest.raises(UserError, match=message):
        write_with_weights(tmp_path, small_source, changed, {"kind": "exported"})
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_without_an_encoder_or_without_a_configuration_is_refused(small_source, tmp_path):
    path = pathlib.Path(tf.train.Checkpoint(step=tf.Variable(1)).write(str(tmp_path / "model.ckpt-1")))
    with pytest.raises(UserError, match=r"model.ckpt-1: the run did not train its encoder; the one it used is /"):
        convert_run(path, small_source, tmp_path / "out")
    with pytest.raises(UserError, match=r"found no config\.json beside it"):
        run_checkpoint(path)
