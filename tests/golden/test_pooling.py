"""Sentence embeddings against what the TF1 code pooled (pooling.npz)."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import pooling, reduce_dimension

ORIGINAL_NAMES = [
    "avg",
    "cls",
    *(f"avg-last-{n}" for n in (1, 2, 3)),
    *(f"avg-last-last-{n}" for n in (1, 2, 3)),
    "avg-last-concat-2",
]
LOW_DIM = "low_dim"


@pytest.fixture(scope="module")
def golden(golden_dir):
    with np.load(golden_dir / "pooling.npz") as arrays:
        return dict(arrays)


def test_every_type_of_the_golden_data_is_compared(golden):
    assert sorted(k for k in golden if k.startswith("pooled/")) == sorted(
        f"pooled/{n}" for n in (*ORIGINAL_NAMES, LOW_DIM)
    )


@pytest.mark.differs("`avg-last-concat-N`")
@pytest.mark.parametrize("deeper", [0, 2])
@pytest.mark.parametrize("name", ORIGINAL_NAMES)
def test_on_the_layers_of_the_original(golden, deviation, name, deeper):
    layers = [tf.constant(golden[f"encoder_layer_{i}"]) for i in range(3)]
    # An encoder of more layers has them where no N up to 3 looks: N counts from the end, but
    # `avg-last-N` and `avg-last-concat-N` begin with the first layer.
    place = 0 if name.startswith("avg-last-last") else 1
    layers[place:place] = [tf.fill(layers[0].shape, np.nan)] * deeper
    outputs = {
        "sequence_output": tf.constant(golden["sequence_output"]),
        "pooled_output": tf.constant(golden["pooled_output"]),
        "encoder_outputs": layers,
    }
    pooled = pooling(name, len(layers))(outputs, golden["input_mask"])
    deviation(
        "pooling, on TF1's layers, absolute", np.abs(pooled - golden[f"pooled/{name}"]).max(), 1e-6
    )


@pytest.mark.parametrize("name", ORIGINAL_NAMES)
def test_from_the_tf1_checkpoint_on(tiny_source, golden, deviation, name):
    encoder = SentenceEncoder(tiny_source, name, trainable=False)
    keys = {
        "input_word_ids": "input_ids",
        "input_mask": "input_mask",
        "input_type_ids": "segment_ids",
    }
    inputs = {name: tf.constant(golden[key]) for name, key in keys.items()}
    found = np.abs(encoder(inputs) - golden[f"pooled/{name}"]).max()
    deviation("pooling, from the TF1 checkpoint on, absolute", found, 1e-5)


def test_low_dim(golden, deviation):
    found = reduce_dimension(tf.constant(golden["pooled/avg"]), 8)
    deviation(
        "pooling, on TF1's layers, absolute",
        np.abs(found - golden[f"pooled/{LOW_DIM}"]).max(),
        1e-6,
    )
