"""How steps of NLI training are driven, recorded and compared; without the peers."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from benchmarks import nli, nli_step
from benchmarks.hugging_face_folder import write_hugging_face_folder
from benchmarks.options import Options
from bert_flow_tf.api import BertFlow
from bert_flow_tf.errors import UserError
from bert_flow_tf.sample_data import sample_glue_dir

STEPS = 7


def test_the_sides_take_turns_block_by_block():
    steps = []

    def of(side):
        def take(first, n):
            steps.extend(f"{side}{i}" for i in range(first, first + n))
            return [1.0] * n

        return take

    turns = nli_step.InTurn({side: of(side) for side in "bc"}, warm_up=2, block=3)
    for i in range(2 + 4 * 3):
        steps.append(f"a{i}")
        turns.on_train_batch_end(i)
    a, b, c = ([[f"{side}{i}" for i in range(first, first + 3)] for first in (2, 5, 8, 11)] for side in "abc")
    turned = [a[0], b[0], b[1], c[0], c[1], a[1], a[2], b[2], b[3], c[2], c[3], a[3]]
    assert steps == ["a0", "a1", "b0", "b1", "c0", "c1", *(step for block in turned for step in block)]
    assert {side: len(each) for side, each in turns.seconds.items()} == {"ours": 14, "b": 14, "c": 14}


@pytest.fixture(scope="module")
def options(documented_encoder_dir):
    return Options(sample_glue_dir(), str(documented_encoder_dir))


@pytest.fixture(scope="module")
def recorded(options, tmp_path_factory):
    """What `record` gives for the small encoder, its rates of dropout set to .1 before, and the arrays it wrote."""
    folder = tmp_path_factory.mktemp("nli")
    write_hugging_face_folder(options.bert_hub, folder / "weights")
    config = json.loads((folder / "weights" / "config.json").read_text())
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (folder / "weights" / "config.json").write_text(json.dumps(config | rates))
    found = nli_step.record(options, len(nli.read_pairs(options)), STEPS, folder)
    with np.load(folder / "recorded.npz") as stored:
        return found, dict(stored)


def test_recorded_losses_are_those_of_the_recorded_batches(options, recorded):
    found, arrays = recorded
    assert sum(name.startswith("labels_") for name in arrays) == STEPS
    encoder = BertFlow.from_hub(options.bert_hub).encoder
    for i, loss in enumerate(found["losses"]):
        ids, mask = (tf.constant(arrays[f"{name}_{i}"], tf.int32) for name in ("ids", "mask"))
        assert ids.shape[0] == 2 * nli.BATCH_SIZE
        inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
        a, b = np.moveaxis(encoder(inputs).numpy().reshape(nli.BATCH_SIZE, 2, -1), 1, 0)
        logits = np.concatenate([a, b, np.abs(a - b)], axis=1) @ arrays["classifier"].T
        of_label = logits[np.arange(nli.BATCH_SIZE), arrays[f"labels_{i}"]]
        assert loss == pytest.approx(np.mean(np.log(np.exp(logits).sum(axis=1)) - of_label), rel=1e-5)


def test_a_run_that_is_only_watched_sees_the_recorded_batches(options, recorded, tmp_path):
    losses = []
    noting = tf_keras.callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: losses.append(logs["loss"]))
    settings = nli.settings(options, len(nli.read_pairs(options)), nli_step.COMPARED_STEPS, tmp_path)
    nli_step.train(settings | {"learning_rate": 0.0}, noting)
    np.testing.assert_allclose(losses, recorded[0]["losses"], rtol=1e-5)


@pytest.mark.parametrize("name, value", [("losses", 1.001), ("norms", 0.501), ("losses", math.nan)])
def test_sides_that_compute_something_else_are_not_timed(name, value):
    ours = {"losses": [1.0, 1.0], "norms": [0.5, 0.5]}
    assert nli_step.compare(ours, ours) == {"loss": 0.0, "norm": 0.0}
    with pytest.raises(UserError, match=r"^nli_step: found differences"):
        nli_step.compare(ours, ours | {name: [ours[name][0], value]})
