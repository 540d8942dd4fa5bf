"""The original's command line: its flags, and one line with status 2 for bad input, with nothing left behind."""

import json
import os
import pathlib
import re
import shutil
import signal

import msgspec
import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from bert_flow_tf import run_siamese
from bert_flow_tf.api import BertFlow
from bert_flow_tf.commands.evaluate import read_all, scores_of
from bert_flow_tf.files.atomic import locked
from bert_flow_tf.results.rows import score_rows
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

# The original's flags and defaults; None where it has none, or where the vocabulary decides.
ORIGINAL_FLAGS = {
    **dict.fromkeys(("bert_config_file", "task_name", "vocab_file", "init_checkpoint", "data_dir"), None),
    **dict.fromkeys(("output_parent_dir", "exp_name", "exp_name_prefix", "cached_dir", "eval_checkpoint_name"), None),
    **dict.fromkeys(("do_train", "do_eval", "do_predict", "early_stopping", "use_xla", "auc", "do_senteval"), False),
    **dict.fromkeys(("predict_pool", "do_predict_on_dev", "do_predict_on_full"), False),
    **{"do_lower_case": None, "max_seq_length": 128, "label_min": 0.0, "label_max": 5.0, "seed": 1234},
    **{"log_every_step": 10, "save_checkpoints_steps": 1000, "train_batch_size": 32, "learning_rate": 5e-5},
    **{"num_train_epochs": 3.0, "warmup_proportion": 0.1, "start_delay_secs": 120, "throttle_secs": 600},
    **{"eval_batch_size": 8, "predict_batch_size": 8, "sentence_embedding_type": "avg"},
    **{"flow": 0, "flow_loss": 0, "flow_learning_rate": 1e-3, "flow_model_config": "config_l3_d3_w32"},
    **{"num_examples": -1, "use_full_for_training": 0, "dupe_factor": 1, "l2_penalty": -1.0, "low_dim": -1},
    **{"senteval_tasks": ""},
}


@pytest.fixture
def flag_values(tmp_path, tiny_encoder_dir):
    """Settings of a run that could be done; its task is written already, its directory is not there."""
    return {
        "task_name": "STS-B",
        "data_dir": small_runs.write_stsb(tmp_path / "STS-B"),
        "output_parent_dir": tmp_path / "out",
        "exp_name": "run",
        "bert_hub": tiny_encoder_dir,
        "max_seq_length": 12,
        "train_batch_size": 8,
        "do_train": True,
        "do_predict": True,
    }


def assert_refused(status, stderr, *parts):
    line = stderr.splitlines()[-1]
    assert status == 2
    assert line.startswith("error: ")
    assert sum(other.startswith("error: ") for other in stderr.splitlines()) == 1
    assert "Traceback" not in stderr
    for part in parts:
        assert part in line


def assert_refused_in_process(tmp_path, flag_values, *parts):
    assert_refused(*small_runs.main(*small_runs.as_flags(flag_values)), *parts)
    assert not (tmp_path / "out").exists()


def edit(path, change):
    """Rewrites a file's rows of columns."""
    small_runs.write_tsv(path, change([line.split("\t") for line in path.read_text().splitlines()]))


def test_every_flag_of_the_original_has_its_default_and_every_flag_a_description():
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    assert {name: values[name].default for name in ORIGINAL_FLAGS} == ORIGINAL_FLAGS
    assert all(len(values[name].help) > 10 for name in values)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "original.md").read_text(encoding="utf-8")
    new = re.findall(r"`--(\w+)`", re.search(r"flags; new are (.+?)\.\n", page, re.DOTALL)[1])
    assert set(values) - ORIGINAL_FLAGS.keys() == set(new)


def test_a_slip_in_the_flags_is_one_line_in_the_shell():
    status, stderr = small_runs.finish(small_runs.start(["--train_batch_size=many"]))
    assert_refused(status, stderr, "train_batch_size", "many")
    assert len(stderr.splitlines()) == 1


@pytest.mark.differs("Unknown flags")
@pytest.mark.parametrize("flag", ["--seed=1.5", f"--{'x' * 300}=1", "--no\n=1"])
def test_unknown_flags_and_values_are_a_user_error(flag):
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    with user_error():
        run_siamese.parse(["run_siamese", flag], values)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [(["--do_train=true"], ["--task_name", "expected a value"]), (["stray", "--seed=2"], ["stray", "flags only"])],
)
def test_a_missing_flag_or_a_stray_argument_is_one_line(arguments, parts):
    assert_refused(*small_runs.main(*arguments), *parts)


def test_bad_input_is_one_line(flag_values, tmp_path):
    edit(tmp_path / "STS-B" / "train.tsv", lambda rows: [*rows[:5], [*rows[5][:9], "four"], *rows[6:]])
    assert_refused_in_process(tmp_path, flag_values, "train.tsv, line 6, column 10", "'four'")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"sentence_embedding_type": "mean"}, ["--sentence_embedding_type: found 'mean'", "avg-last-N"]),
        ({"max_seq_length": 25}, ["--max_seq_length: found 25, expected 3 to 24"]),
        ({"bert_hub": ""}, ["--bert_hub", "init_checkpoint"]),
        ({"flow": 1, "flow_model_config": "config_l9"}, ["--flow_model_config: ", "config_l9"]),
        ({"low_dim": 5}, ["--low_dim: found 5", "32"]),
        ({"train_batch_size": 9, "num_logical_cpus": 2}, ["--train_batch_size: found 9", "2 replicas"]),
        ({"num_train_epochs": 0.1}, ["--num_train_epochs: found 0.1, which gives 0 training steps"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_a_bad_flag_is_one_line_and_leaves_nothing_behind(tmp_path, flag_values, changes, parts):
    assert_refused_in_process(tmp_path, flag_values | changes, *parts)


def test_an_untrained_encoder_predicts_without_a_run(tmp_path, flag_values):
    for name, changes in {"never": {"do_train": False}, "hardly": {"num_train_epochs": 1e-10}}.items():
        status, _ = small_runs.main(*small_runs.as_flags(flag_values, exp_name=name, do_eval=True, **changes))
        assert status == 0
        written = {"eval_results.txt", "test_results.json", "test_results.tsv"}
        assert {path.name for path in (tmp_path / "out" / name).iterdir()} == written
    hardly, never = ((tmp_path / "out" / name / "test_results.tsv").read_bytes() for name in ("hardly", "never"))
    assert hardly == never
    assert b"nan" not in never
    assert "global_step = 0\n" in (tmp_path / "out" / "never" / "eval_results.txt").read_text()


@pytest.fixture(scope="module")
def flow_flags(tmp_path_factory, small_encoder_dir):
    """Settings of a flow run of 120 steps on cached embeddings."""
    changes = {"num_train_epochs": 40.0, "do_predict": True}
    return small_runs.flow_values(tmp_path_factory.mktemp("flow"), small_encoder_dir, **changes)


@pytest.fixture(scope="module")
def flow_run(flow_flags):
    return small_runs.run(flow_flags, exp_name="whole")


def training_step(run_dir):
    """The step of a run's last checkpoint."""
    return int(tf.train.latest_checkpoint(str(run_dir)).rpartition("-")[2])


def test_a_killed_run_resumes_and_ends_in_the_same_bits(flow_flags, flow_run):
    run_dir = flow_run.parent / "killed"
    changes = {"exp_name": "killed", "save_checkpoints_steps": 2}
    process = small_runs.start(small_runs.as_flags(flow_flags, **changes))
    small_runs.wait_for(run_dir / "model.ckpt-10.index", process)
    os.kill(process.pid, signal.SIGKILL)
    assert small_runs.finish(process)[0] == -signal.SIGKILL
    assert not (run_dir / TRAIN_RESULTS_FILE).exists()
    assert 0 < training_step(run_dir) < 120
    status, stderr = small_runs.main(*small_runs.as_flags(flow_flags, **changes))
    assert status == 0, stderr
    assert (run_dir / "test_results.tsv").read_bytes() == (flow_run / "test_results.tsv").read_bytes()
    small_runs.assert_same_bits(run_dir, flow_run)


def test_a_run_killed_before_its_results_writes_them(flow_flags, flow_run):
    (flow_run / "test_results.tsv").rename(flow_run / "kept.tsv")
    before = small_runs.checkpoint_variables(flow_run)
    small_runs.run(flow_flags, exp_name="whole")
    assert (flow_run / "test_results.tsv").read_bytes() == (flow_run / "kept.tsv").read_bytes()
    (flow_run / "kept.tsv").unlink()
    np.testing.assert_equal(small_runs.checkpoint_variables(flow_run), before)


def test_what_is_predicted_after_a_kill_is_embedded_with_what_was_learned(flow_flags):
    changes = {"exp_name": "full", "use_full_for_training": 1, "num_train_epochs": 1.0}
    run_dir = small_runs.run(flow_flags, **changes)
    before = (run_dir / "test_results.tsv").read_bytes()
    (embeddings,) = run_dir.glob("embeddings-*")
    (run_dir / "test_results.tsv").unlink()
    small_runs.run(flow_flags, **changes)
    assert (run_dir / "test_results.tsv").read_bytes() == before
    assert list(run_dir.glob("embeddings-*")) == [embeddings]


def test_what_a_run_writes_has_the_modes_of_the_users_new_files(flow_flags, tmp_path):
    folders = {"output_parent_dir": str(tmp_path / "runs"), "cached_dir": str(tmp_path / "cached")}
    before = os.umask(0o027)
    try:
        small_runs.run(flow_flags, **folders, exp_name="run", num_train_epochs=1.0)
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    assert {"cached", "config.json", "checkpoint", "test_results.tsv"} <= {path.name for path in made}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o640}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o750}


def damage(prefix):
    """Flips a byte in the middle of a checkpoint's data."""
    (path,) = prefix.parent.glob(f"{prefix.name}.data-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_finished_run_without_its_checkpoint_predicts_nothing(flow_flags, flow_run, caplog):
    run_dir = shutil.copytree(flow_run, flow_run.parent / "without_checkpoint")
    command = small_runs.as_flags(flow_flags, exp_name=run_dir.name, do_predict=True, do_predict_on_dev=True)
    # Its name alone is no loss.
    (run_dir / "checkpoint").unlink()
    status, stderr = small_runs.main(*command)
    assert status == 0, stderr
    (run_dir / "dev_results.tsv").unlink()
    damage(run_dir / "model.ckpt-120")
    status, stderr = small_runs.main(*command)
    assert_refused(status, stderr, "finished run without its checkpoint of step 120", "--overwrite")
    assert "model.ckpt-120" in caplog.text
    assert not (run_dir / "dev_results.tsv").exists()


def test_an_interrupted_run_passes_over_a_damaged_checkpoint(flow_flags, flow_run, caplog):
    run_dir = flow_run.parent / "damaged"
    small_runs.run(flow_flags, exp_name="damaged", save_checkpoints_steps=50, do_predict=False)
    (run_dir / TRAIN_RESULTS_FILE).unlink()
    damage(run_dir / "model.ckpt-120")
    # What a kill leaves, of this program and of TensorFlow.
    (run_dir / ".config.json.tmp").touch()
    (run_dir / "model.ckpt-150_temp").mkdir()
    (run_dir / "model.ckpt-150.data-00000-of-00001").touch()
    status, stderr = small_runs.main(*small_runs.as_flags(flow_flags, exp_name="damaged", save_checkpoints_steps=50))
    assert status == 0, stderr
    assert "it is skipped" in caplog.text and f"Resumed from {run_dir}/model.ckpt-100" in caplog.text
    small_runs.assert_same_bits(run_dir, flow_run)
    assert not [path.name for path in run_dir.iterdir() if path.name.startswith(".") or "150" in path.name]


def test_two_of_one_run_at_once_are_refused_by_name(flow_flags, flow_run):
    with locked(flow_run):
        process = small_runs.start(small_runs.as_flags(flow_flags, exp_name=flow_run.name))
        status, stderr = small_runs.finish(process)
    assert_refused(status, stderr, f"{flow_run}: another process is using it")


@pytest.mark.differs("is not scored with another")
def test_a_finished_run_and_another_run_are_refused(flow_flags, flow_run, tiny_encoder_dir):
    files = {path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()}
    other_model = {"sentence_embedding_type": "cls", "max_seq_length": 9, "low_dim": 4, "flow": 0, "flow_loss": 0}
    named = [f"{name} is " for name in ("sentence_embedding_type", "max_seq_length", "low_dim", "flow_model_config")]
    for changes, parts in (
        ({}, ["finished run", "--overwrite"]),
        ({"seed": 5}, ["other settings", "seed is 1234 there and 5 here", "--overwrite"]),
        ({"flow_learning_rate": 0.1, "max_seq_length": 9}, ["flow_learning_rate is 0.01", "max_seq_length is 10"]),
        ({"do_train": False, **other_model}, ["other settings", *named]),
        ({"do_train": False, "flow_model_config": "config_l2_d2_w32"}, ["other settings", "flow_model_config is "]),
        ({"do_train": False, "eval_checkpoint_name": "model.ckpt-7"}, ["model.ckpt-7"]),
        ({"do_train": False, "bert_hub": str(tiny_encoder_dir)}, [tiny_encoder_dir.name, "expected the recorded one"]),
    ):
        status, stderr = small_runs.main(*small_runs.as_flags(flow_flags | {"exp_name": "whole"} | changes))
        assert_refused(status, stderr, *parts)
        assert {path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()} == files


def test_a_named_checkpoint_predicts_to_a_file_of_its_own(flow_flags, flow_run):
    changes = {"exp_name": "whole", "do_train": False}
    small_runs.run(flow_flags, **changes, eval_checkpoint_name="model.ckpt-0")
    small_runs.run(flow_flags, **changes, eval_checkpoint_name="model.ckpt-120")
    first, last = ((flow_run / f"model.ckpt-{i}.test_results.tsv").read_bytes() for i in (0, 120))
    assert last == (flow_run / "test_results.tsv").read_bytes()
    assert first != last


def test_evaluation_alone_gives_what_it_gave_after_training(flow_flags):
    values = flow_flags | {"exp_name": "evaluated", "num_train_epochs": 1.0, "do_predict": False, "do_eval": True}
    run_dir = small_runs.run(values)
    first = (run_dir / "eval_results.txt").read_bytes()
    # No label counts, so the supervised loss is zero, as in the original.
    assert b"eval_loss = 0.0\n" in first
    (run_dir / "eval_results.txt").unlink()
    small_runs.run(values, do_train=False)
    assert (run_dir / "eval_results.txt").read_bytes() == first


def test_a_flow_that_has_learned_nothing_predicts_with_a_warning(flow_flags, flow_run, caplog):
    alone = flow_flags | {"do_train": False}
    begun = {"exp_name": "begun", "init_checkpoint": str(flow_run / "model.ckpt-120")}
    for changes in ({"exp_name": "whole"}, begun, {"exp_name": "without", "flow": 0, "flow_loss": 0}):
        small_runs.run(alone, **changes)
    assert "learned nothing" not in caplog.text
    run_dir = small_runs.run(alone, exp_name="no_run")
    assert f"{run_dir} has no checkpoint: its flow has learned nothing" in caplog.text
    assert (run_dir / "test_results.tsv").is_file()


def test_a_flow_begins_with_that_of_the_checkpoint_it_is_given(flow_flags, flow_run):
    given = {"exp_name": "second", "num_train_epochs": 1.0, "init_checkpoint": str(flow_run / "model.ckpt-120")}
    both = small_runs.as_flags(flow_flags | given | {"flow_ddi": True})
    assert_refused(*small_runs.main(*both), "--flow_ddi: found true with a flow in --init_checkpoint")
    run_dir = small_runs.run(flow_flags, **given)
    start = small_runs.checkpoint_variables(run_dir, "model.ckpt-0")
    end = small_runs.checkpoint_variables(flow_run, "model.ckpt-120")
    flow = [key for key in end if key.startswith("flow/")]
    assert flow
    for key in flow:
        np.testing.assert_array_equal(start[key], end[key], err_msg=key)


@pytest.mark.differs("`do_senteval`")
@pytest.mark.differs("SentEval's scores")
def test_sentevals_tasks_are_scored_into_the_record_that_a_report_reads(flow_flags, flow_run, tmp_path, capsys):
    folder = small_runs.write_senteval(tmp_path / "SentEval", small_runs.SMALL_WORDS)
    wanted = {"do_senteval": True, "senteval_tasks": "STS12, SST2", "senteval_dir": str(folder), "do_predict": False}
    values = flow_flags | wanted | {"exp_name": "whole", "do_train": False}
    for names, message in (
        ("STS12,CRs", "--senteval_tasks: found CRs, expected some of STS12, "),
        ("", "--senteval_tasks: found nothing"),
        ("MR", "MR: no such folder"),
    ):
        assert_refused(*small_runs.main(*small_runs.as_flags(values, senteval_tasks=names)), message)
    run_dir = small_runs.run(values)
    printed = capsys.readouterr().out
    assert len(re.findall("^(STS-12|senteval:sst2) ", printed, re.MULTILINE)) == 2
    written = json.loads((run_dir / "evaluation.json").read_text())
    assert written["made_by"]["command"] == "run_siamese"
    # As `bert-flow evaluate` scores the run.
    tasks = read_all(["sts12", "senteval:sst2"], senteval_dir=folder, split=None)
    expected = msgspec.to_builtins(scores_of(BertFlow.load(run_dir), tasks))
    assert {key: written[key] for key in ("model", "tasks", "without_flow")} == {
        key: expected[key] for key in ("model", "tasks", "without_flow")
    }
    rows = score_rows(find_sources([run_dir]))
    assert [(row.task, row.protocol) for row in rows] == [
        *(("STS-12", protocol) for protocol in ("wmean", "mean", "all")),
        ("senteval:sst2", None),
    ]
    assert_refused(*small_runs.main(*small_runs.as_flags(values)), "evaluation.json: exists", "--overwrite")
    # Of an encoder as it is, and after training.
    plain = small_runs.run(values, flow=0, flow_loss=0, exp_name="plain", senteval_tasks="SST2")
    assert json.loads((plain / "evaluation.json").read_text())["model"]["flow"] is None
    trained = small_runs.run(
        values, do_train=True, senteval_tasks="STS12", exp_name="plain", num_train_epochs=1.0, overwrite=True
    )
    assert json.loads((trained / "evaluation.json").read_text())["model"]["checkpoint"].endswith("model.ckpt-3")
    # Of a checkpoint alone, whatever run is there; without a name the scores are printed.
    capsys.readouterr()
    given = values | {"init_checkpoint": str(run_dir / "model.ckpt-120")}
    small_runs.run(given, exp_name="plain", overwrite=True)
    assert capsys.readouterr().out == printed
    assert json.loads((trained / "evaluation.json").read_text())["model"]["flow"]
    nameless = {name: value for name, value in given.items() if name != "exp_name"} | {"original_protocol": True}
    assert small_runs.main(*small_runs.as_flags(nameless))[0] == 0
    _, _, sts12, sst2, *_ = capsys.readouterr().out.splitlines()
    assert sts12.split() == printed.splitlines()[2].split()
    assert sst2.startswith("senteval:sst2 (norm 1, 5 folds) ")
    (run_dir / "evaluation.json").unlink()


def test_xla_gives_the_same_losses(flow_flags, flow_run, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path}")
    arguments = small_runs.as_flags(flow_flags, exp_name="xla", num_train_epochs=2.0, do_predict=False)
    status, stderr = small_runs.finish(small_runs.start([*arguments, "--use_xla"]))
    assert status == 0, stderr
    losses = small_runs.logged(flow_run.parent / "xla", "flow_loss")
    assert len(losses) == 6
    assert list(tmp_path.glob("*cluster*")), "nothing was compiled"
    np.testing.assert_allclose(losses, small_runs.logged(flow_run, "flow_loss")[:6], rtol=1e-4)


def test_a_flow_that_diverges_stops_with_its_last_good_state(flow_flags):
    changes = {"exp_name": "diverged", "flow_learning_rate": 1e20, "save_checkpoints_steps": 1, "num_train_epochs": 2.0}
    status, stderr = small_runs.main(*small_runs.as_flags(flow_flags, **changes))
    assert_refused(status, stderr, "finite", "last good state")
    run_dir = small_runs.Settings(**flow_flags | changes).output_dir
    assert not (run_dir / "test_results.tsv").exists()
    for path in run_dir.glob("model.ckpt-*.index"):
        for name, value in small_runs.checkpoint_variables(run_dir, path.stem).items():
            assert np.all(np.isfinite(value)) if value.dtype.kind == "f" else True, name
    assert stderr.splitlines()[-1].endswith(tf.train.latest_checkpoint(str(run_dir)))
