"""A run's settings, the name they spell, and the directory that holds it."""

import dataclasses
import json

import pytest

from bert_flow_tf import experiment
from bert_flow_tf.errors import UserError
from bert_flow_tf.experiment import Settings

ENCODER = {"bert_hub": "demo", "preprocess_hub": None, "do_lower_case": True, "fingerprint": "a" * 64}
CONFIG = {
    "format_version": 1,
    "encoder": ENCODER,
    "data": {"num_examples": 5, "fingerprint": "b"},
    "encoder_trained": False,
    "flags": {"seed": 1, "learning_rate": 0.1},
}


def make_settings(**changes):
    values = {"task_name": "STS-B", "data_dir": "data", "output_parent_dir": "out", "exp_name_prefix": "exp"}
    return Settings(**values | {"do_eval": True} | changes)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "exp_t_STS-B_ep_3.00_lr_5.00e-05"),
        (
            {
                "num_train_epochs": 1.0,
                "sentence_embedding_type": "avg-last-2",
                "flow": 1,
                "flow_loss": 1,
                "use_full_for_training": 1,
            },
            "exp_t_STS-B_ep_1.00_lr_5.00e-05_e_avg-last-2_f_11_1.00e-03_allsplits",
        ),
        ({"train_batch_size": 16, "learning_rate": 2e-5}, "exp_t_STS-B_ep_3.00_lr_2.00e-05_bsz_16"),
        ({"num_train_epochs": 1e-10}, "exp_t_STS-B_ep_0.00_lr_5.00e-05"),
        ({"use_full_for_training": 1}, "exp_t_STS-B_ep_3.00_lr_5.00e-05"),
        ({"flow": 1}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10"),
        (
            {"flow": 1, "flow_model_config": "config_l2_d3_w32"},
            "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_config_l2_d3_w32",
        ),
        ({"flow": 1, "flow_model_config": "/x/mine.json"}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_mine"),
        ({"flow": 1, "flow_ddi": True}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_f_10_ddi"),
        ({"num_examples": 100}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_n_100"),
        ({"num_examples": 0}, "exp_t_STS-B_ep_3.00_lr_5.00e-05"),
        ({"low_dim": 16, "l2_penalty": 0.01}, "exp_t_STS-B_ep_3.00_lr_5.00e-05_ld_16_l2_1.00e-02"),
        ({"task_name": "MRPC-regression"}, "exp_t_MRPC-regression_ep_3.00_lr_5.00e-05"),
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
        ({}, "test_results.tsv"),
        ({"predict_pool": True}, "test_pooled.tsv"),
        ({"do_predict_on_dev": True}, "dev_results.tsv"),
        ({"do_predict_on_full": True, "predict_pool": True}, "full_pooled.tsv"),
        ({"eval_checkpoint_name": "model.ckpt-8"}, "model.ckpt-8.test_results.tsv"),
    ],
)
def test_the_settings_name_the_file_of_predictions(changes, name):
    assert make_settings(exp_name="run", **changes).prediction_path.as_posix() == f"out/run/{name}"


@pytest.mark.differs("`do_senteval`")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 2}, "--max_seq_length: found 2, expected at least 3"),
        ({"train_batch_size": 0}, "--train_batch_size: found 0"),
        ({"num_train_epochs": -1.0}, "--num_train_epochs: found -1"),
        ({"num_train_epochs": float("inf")}, "--num_train_epochs: found inf, expected a finite number"),
        ({"learning_rate": float("nan")}, "--learning_rate: found nan, expected a finite number"),
        ({"num_examples": -2}, "--num_examples: found -2"),
        ({"seed": 2**32}, "--seed: found 4294967296"),
        ({"warmup_proportion": 1.0}, "--warmup_proportion: found 1.0"),
        ({"flow": 2}, "--flow: found 2, expected 0 or 1"),
        ({"flow_loss": 1}, "--flow_loss: found 1 with --flow=0"),
        ({"flow_ddi": True}, "--flow_ddi: found true with --flow=0"),
        ({"cache_embeddings": True}, "--cache_embeddings: found true with an encoder in training"),
        ({"cache_embeddings": True, "num_examples": 0, "l2_penalty": 0.1}, "--cache_embeddings: found true"),
        ({"do_senteval": True}, "--do_senteval: found true"),
        ({"do_eval": False}, "found none of them, expected at least one"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(changes, message):
    with pytest.raises(UserError) as caught:
        make_settings(**changes).check()
    assert message in str(caught.value)


@pytest.mark.differs("computed once, without dropout")
def test_embeddings_are_cached_where_the_encoder_is_frozen_unless_told_otherwise():
    assert make_settings(num_examples=0).caches_embeddings
    assert not make_settings(num_examples=0, cache_embeddings=False).caches_embeddings
    assert not make_settings(num_examples=0, l2_penalty=0.1).caches_embeddings
    assert not make_settings(num_examples=5).caches_embeddings


def test_training_depends_on_no_flag_of_where_to_read_and_what_to_report():
    moved = {"data_dir": "b", "output_parent_dir": "c", "exp_name": "d", "do_predict": True, "overwrite": True}
    assert make_settings(**moved).what_training_depends_on() == make_settings().what_training_depends_on()
    explicit = make_settings(num_examples=0, cache_embeddings=True)
    assert explicit.what_training_depends_on() == make_settings(num_examples=0).what_training_depends_on()


@pytest.mark.parametrize(
    "changes",
    [{"seed": 5}, {"learning_rate": 1.0}, {"max_seq_length": 9}, {"flow": 1}, {"dupe_factor": 2}, {"low_dim": 4}],
)
def test_training_depends_on_what_changes_its_numbers(changes):
    assert make_settings(**changes).what_training_depends_on() != make_settings().what_training_depends_on()


def test_a_new_run_starts_and_the_same_settings_go_on(tmp_path):
    run_dir = tmp_path / "parent" / "run"
    assert experiment.open_run(run_dir, CONFIG, overwrite=False) is False
    assert json.loads((run_dir / "config.json").read_text()) == CONFIG
    (run_dir / "model.ckpt-1.index").write_text("kept")
    assert experiment.open_run(run_dir, CONFIG, overwrite=False) is True
    assert (run_dir / "model.ckpt-1.index").read_text() == "kept"


def test_another_encoders_folder_is_no_difference_but_other_weights_are(tmp_path):
    experiment.open_run(tmp_path / "run", CONFIG, overwrite=False)
    moved = CONFIG | {"encoder": ENCODER | {"bert_hub": "/elsewhere"}}
    assert experiment.open_run(tmp_path / "run", moved, overwrite=False) is True
    with pytest.raises(UserError, match=r"encoder is 'aaa.* there and 'c' here"):
        experiment.open_run(tmp_path / "run", CONFIG | {"encoder": ENCODER | {"fingerprint": "c"}}, overwrite=False)


@pytest.mark.differs("directory is not deleted")
def test_a_run_with_other_settings_is_refused_and_each_difference_named(tmp_path):
    experiment.open_run(tmp_path / "run", CONFIG, overwrite=False)
    other = CONFIG | {"flags": {"seed": 2, "learning_rate": 0.2}, "data": {"num_examples": 5, "fingerprint": "x"}}
    with pytest.raises(UserError) as caught:
        experiment.open_run(tmp_path / "run", other, overwrite=False)
    for part in ("data is 'b' there and 'x' here", "learning_rate is 0.1 there and 0.2 here", "seed is 1 there and 2"):
        assert part in str(caught.value)
    assert "--overwrite" in str(caught.value)
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == CONFIG


def test_a_finished_run_is_refused_unless_one_of_its_results_is_missing(tmp_path):
    experiment.open_run(tmp_path / "run", CONFIG, overwrite=False)
    (tmp_path / "run" / experiment.TRAIN_RESULTS_FILE).write_text("{}")
    with pytest.raises(UserError, match=r"finished run.*--overwrite"):
        experiment.open_run(tmp_path / "run", CONFIG, overwrite=False)
    assert experiment.open_run(tmp_path / "run", CONFIG, overwrite=False, missing_outputs=["test_results.tsv"])


def test_overwrite_begins_anew(tmp_path):
    experiment.open_run(tmp_path / "run", CONFIG, overwrite=False)
    (tmp_path / "run" / "old").write_text("")
    assert experiment.open_run(tmp_path / "run", CONFIG | {"flags": {}}, overwrite=True) is False
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]


def test_another_flow_under_the_same_name_is_refused(tmp_path):
    experiment.open_run(tmp_path / "run", CONFIG | {"flow_config": {"depth": 3}}, overwrite=False)
    with pytest.raises(UserError, match=r"flow_config is \{'depth': 3\} there and \{'depth': 2\} here"):
        experiment.open_run(tmp_path / "run", CONFIG | {"flow_config": {"depth": 2}}, overwrite=False)


def test_overwrite_replaces_results_that_no_training_belongs_to(tmp_path):
    for name in ("test_results.tsv", "eval_results.txt", "model.ckpt-9.dev_pooled.tsv", ".embeddings-1f.npy.x_1"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UserError, match=r"is not empty and holds no config\.json"):
        experiment.open_run(tmp_path, CONFIG, overwrite=False)
    experiment.open_run(tmp_path, CONFIG, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    "contents",
    [None, "not JSON", "[]", '{"hidden_size": 4}', '{"format_version": 2}', '{"format_version": 1}'],
)
def test_a_directory_that_is_no_run_is_never_deleted(tmp_path, contents):
    (tmp_path / "precious").write_text("x")
    if contents is not None:
        (tmp_path / "config.json").write_text(contents)
    with pytest.raises(UserError) as caught:
        experiment.open_run(tmp_path, CONFIG, overwrite=True)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
    assert (tmp_path / "precious").read_text() == "x"


def test_a_folder_of_data_is_never_deleted(tmp_path):
    for name in ("train.tsv", "dev.tsv", "test.tsv"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UserError, match=r"is not empty and holds no config\.json"):
        experiment.open_run(tmp_path, CONFIG, overwrite=True)


def test_a_run_that_began_with_another_checkpoint_is_refused(tmp_path):
    experiment.open_run(tmp_path / "run", CONFIG | {"begins_with": "abc"}, overwrite=False)
    with pytest.raises(UserError, match="init_checkpoint is 'abc' there and None here"):
        experiment.open_run(tmp_path / "run", CONFIG, overwrite=False)


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError) as caught:
            experiment.open_run(path, CONFIG, overwrite=True)
        assert str(path) in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"


def test_results_that_differ_are_kept_unless_overwritten(tmp_path):
    path = tmp_path / "new" / "test_results.tsv"
    experiment.write_result(path, "0.5\n", overwrite=False)
    experiment.write_result(path, "0.5\n", overwrite=False)
    with pytest.raises(UserError, match="--overwrite"):
        experiment.write_result(path, "0.6\n", overwrite=False)
    assert path.read_text() == "0.5\n"
    experiment.write_result(path, "0.6\n", overwrite=True)
    assert path.read_text() == "0.6\n"
    assert [file.name for file in path.parent.iterdir()] == ["test_results.tsv"]


def test_settings_are_of_plain_types():
    # Flags are made from the annotations, see run_siamese.define_flags.
    assert {field.type for field in dataclasses.fields(Settings)} <= {
        *(str, int, float, bool),
        *(str | None, bool | None),
    }
