"""The settings of NLI training that are measured."""

import pytest

from benchmarks import nli
from benchmarks.options import Options
from bert_flow_tf.runs.settings import Settings
from bert_flow_tf.sample_data import sample_glue_dir


@pytest.mark.parametrize("pairs", [16, 1200, 9427, 961_725])
def test_the_epochs_give_the_steps_that_are_wanted(pairs):
    for steps in (1, 5, 75, 117):
        training = Settings.of(**nli.settings(Options("glue"), pairs, steps, "out")).training
        # As `train` counts them.
        assert int(pairs / training.train_batch_size * training.num_train_epochs) == steps


def test_pairs_are_those_of_mnli_and_of_every_split_of_snli():
    assert len(nli.read_pairs(Options(sample_glue_dir()))) == 720 + 360 + 90 + 30
