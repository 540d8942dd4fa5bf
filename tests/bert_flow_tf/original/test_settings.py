"""A run's settings and the name they spell."""

import pytest

from bert_flow_tf.common.errors import UserError, command_line_message
from bert_flow_tf.original.settings import RunSettings


def make_settings(**changes):
    values = {
        "task_name": "STS-B",
        "data_dir": "data",
        "output_parent_dir": "out",
        "exp_name_prefix": "exp",
    }
    return RunSettings.of(**values | {"do_eval": True} | changes)


FLOW = {"flow": 1, "flow_loss": 1, "use_full_for_training": 1}
FLOW |= {"num_train_epochs": 1.0, "sentence_embedding_type": "avg-last-2"}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        (
            FLOW,
            "exp_t_STS-B_ep_1.00_lr_5.00e-05_e_avg-last-2_f_11_1.00e-03_allsplits/test_results.tsv",
        ),
        (
            {"train_batch_size": 16, "learning_rate": 2e-5},
            "exp_t_STS-B_ep_3.00_lr_2.00e-05_bsz_16/test_results.tsv",
        ),
        (
            {"flow": 1, "flow_model_config": "/x/my.json"},
            "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_my/test_results.tsv",
        ),
        (
            {"flow": 1, "flow_ddi": True},
            "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_ddi/test_results.tsv",
        ),
        (
            {"num_examples": 100, "low_dim": 16},
            "exp_t_STS-B_ep_3.00_lr_5.00e-05_n_100_ld_16/test_results.tsv",
        ),
        (
            {"num_examples": 0, "l2_penalty": 0.01},
            "exp_t_STS-B_ep_3.00_lr_5.00e-05_l2_1.00e-02/test_results.tsv",
        ),
        (
            {"exp_name": "mine", "use_full_for_training": 1, "do_predict_on_dev": True},
            "mine/dev_results.tsv",
        ),
        (
            {"exp_name": "mine", "do_predict_on_full": True, "predict_pool": True},
            "mine/full_pooled.tsv",
        ),
        (
            {"exp_name": "mine", "eval_checkpoint_name": "model.ckpt-8"},
            "mine/model.ckpt-8.test_results.tsv",
        ),
    ],
)
def test_the_settings_name_run_and_predictions(changes, path):
    assert make_settings(**changes).prediction_path.as_posix() == f"out/{path}"


@pytest.mark.differs("take 0 or 1")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 2}, "--max_seq_length: found 2, expected `int` >= 3"),
        ({"learning_rate": float("nan")}, "--learning_rate: found nan, expected a finite number"),
        ({"seed": 2**32}, "--seed: found 4294967296"),
        ({"warmup_proportion": 1.0}, "--warmup_proportion: found 1.0"),
        ({"flow": 2}, "--flow: found 2, expected 0 or 1"),
        (
            {"flow": 1, "flow_ddi": True, "train_batch_size": 1},
            "--train_batch_size: found 1 with --flow_ddi",
        ),
        ({"flow_ddi": True}, "--flow_ddi: found True with --flow=0"),
        (
            {"cache_embeddings": True},
            "--cache_embeddings: found true with an encoder that is trained",
        ),
        (
            {"cache_embeddings": True, "num_examples": 0, "l2_penalty": 0.1},
            "--cache_embeddings: found true",
        ),
        ({"output_parent_dir": "gs://bucket/runs"}, "--output_parent_dir: found an address"),
        ({"exp_name_prefix": None}, "--exp_name_prefix"),
        ({"do_eval": False}, "all missing, expected at least one"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(changes, message):
    with pytest.raises(UserError) as error:
        _ = make_settings(**changes).output_dir
    assert message in command_line_message(error.value)


@pytest.mark.differs("have no effect")
def test_training_flags_are_those_that_affect_weights():
    assert make_settings().training_flags.keys() == {
        *("task_name", "use_full_for_training", "dupe_factor", "label_min", "label_max"),
        *(
            "sentence_embedding_type",
            "max_seq_length",
            "pad_to_max_seq_length",
            "low_dim",
            "cache_embeddings",
        ),
        *("flow", "flow_ddi", "num_examples", "l2_penalty", "flow_loss"),
        *("seed", "train_batch_size", "learning_rate", "flow_learning_rate", "num_train_epochs"),
        *("warmup_proportion", "early_stopping", "use_xla"),
    }
    assert make_settings(flow_learning_rate=1.0).training_flags["flow_learning_rate"] == 1.0


def test_an_encoder_is_scored_on_senteval_without_a_run():
    assert make_settings(
        do_eval=False, do_senteval=True, exp_name_prefix=None
    ).scores_checkpoint_alone
