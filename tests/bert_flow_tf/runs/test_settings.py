"""A run's settings and the name they spell."""

import pytest

from bert_flow_tf.errors import UserError, command_line_message
from bert_flow_tf.runs.settings import Settings


def make_settings(**changes):
    values = {"task_name": "STS-B", "data_dir": "data", "output_parent_dir": "out", "exp_name_prefix": "exp"}
    return Settings(**values | {"do_eval": True} | changes)


FLOW = {"flow": 1, "flow_loss": 1, "use_full_for_training": 1}
FLOW |= {"num_train_epochs": 1.0, "sentence_embedding_type": "avg-last-2"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "exp_t_STS-B_ep_3.00_lr_5.00e-05"),
        (FLOW, "exp_t_STS-B_ep_1.00_lr_5.00e-05_e_avg-last-2_f_11_1.00e-03_allsplits"),
        ({"train_batch_size": 16, "learning_rate": 2e-5}, "exp_t_STS-B_ep_3.00_lr_2.00e-05_bsz_16"),
        ({"num_train_epochs": 1e-10, "use_full_for_training": 1}, "exp_t_STS-B_ep_0.00_lr_5.00e-05"),
        ({"flow": 1, "flow_model_config": "/x/mine.json"}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_mine"),
        ({"flow": 1, "flow_ddi": True}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_ddi"),
        ({"num_examples": 100}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_n_100"),
        ({"num_examples": 0}, "exp_t_STS-B_ep_3.00_lr_5.00e-05"),
        ({"low_dim": 16, "l2_penalty": 0.01}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_ld_16_l2_1.00e-02"),
        ({"exp_name": "mine", "num_examples": 7}, "mine"),
    ],
)
def test_the_settings_spell_the_runs_name(changes, name):
    assert make_settings(**changes).output_dir.as_posix() == f"out/{name}"


def test_a_run_without_a_name_is_refused():
    with pytest.raises(UserError, match="--exp_name_prefix"):
        _ = make_settings(exp_name_prefix=None).output_dir


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"do_predict_on_dev": True}, "dev_results.tsv"),
        ({"do_predict_on_full": True, "predict_pool": True}, "full_pooled.tsv"),
        ({"eval_checkpoint_name": "model.ckpt-8"}, "model.ckpt-8.test_results.tsv"),
    ],
)
def test_the_settings_name_the_file_of_predictions(changes, name):
    assert make_settings(exp_name="run", **changes).prediction_path.as_posix() == f"out/run/{name}"


@pytest.mark.differs("take 0 or 1")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 2}, "--max_seq_length: found 2, expected at least 3"),
        ({"learning_rate": float("nan")}, "--learning_rate: found nan, expected a finite number"),
        ({"num_examples": -2}, "--num_examples: found -2"),
        ({"seed": 2**32}, "--seed: found 4294967296"),
        ({"warmup_proportion": 1.0}, "--warmup_proportion: found 1.0"),
        ({"flow": 2}, "--flow: found 2, expected 0 or 1"),
        ({"use_full_for_training": 2}, "--use_full_for_training: found 2, expected 0 or 1"),
        ({"flow": 1, "flow_ddi": True, "train_batch_size": 1}, "--train_batch_size: found 1 with --flow_ddi"),
        ({"flow_loss": 1}, "--flow_loss: found 1 with --flow=0"),
        ({"flow_ddi": True}, "--flow_ddi: found True with --flow=0"),
        ({"cache_embeddings": True}, "--cache_embeddings: found true with an encoder in training"),
        ({"cache_embeddings": True, "num_examples": 0, "l2_penalty": 0.1}, "--cache_embeddings: found true"),
        ({"output_parent_dir": "gs://bucket/runs"}, "--output_parent_dir: found an address"),
        ({"cached_dir": "gs://bucket/cache"}, "--cached_dir: found an address"),
        ({"do_eval": False}, "found none, expected at least one"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(changes, message):
    with pytest.raises(UserError) as error:
        make_settings(**changes).check()
    assert message in command_line_message(error.value)


@pytest.mark.differs("have no effect")
def test_training_depends_on_no_path_and_no_report():
    moved = {"data_dir": "b", "output_parent_dir": "c", "exp_name": "d", "do_predict": True, "overwrite": True}
    moved |= {"start_delay_secs": 1, "throttle_secs": 1, "predict_batch_size": 1}
    assert make_settings(**moved).training_flags() == make_settings().training_flags()


def test_training_depends_on_what_changes_its_numbers():
    assert make_settings().training_flags().keys() == {
        *("task_name", "use_full_for_training", "dupe_factor", "label_min", "label_max"),
        *("sentence_embedding_type", "max_seq_length", "pad_to_max_seq_length", "low_dim", "cache_embeddings"),
        *("flow", "flow_ddi", "num_examples", "l2_penalty", "flow_loss"),
        *("seed", "train_batch_size", "learning_rate", "flow_learning_rate", "num_train_epochs"),
        *("warmup_proportion", "early_stopping", "use_xla"),
    }
    assert make_settings(flow_learning_rate=1.0).training_flags()["flow_learning_rate"] == 1.0
