"""The original's command line: its flags, its runs, and its mistakes."""

import concurrent.futures
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
from bert_flow_tf.commands.evaluate import read_tasks, scores_of
from bert_flow_tf.files.atomic import locked
from bert_flow_tf.results.rows import score_rows
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from tests.bert_flow_tf import small_runs
from tests.refusals import refusal, user_error

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
    """Settings of a run whose task is written already."""
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


def refused(settings, *parts, **changes):
    """Check that the command line ends with these parts in one line."""
    refusal(*small_runs.main(*small_runs.as_flags(settings, **changes)), *parts, after_log=True)


def test_flags_have_the_originals_defaults_and_descriptions():
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    assert {name: values[name].default for name in ORIGINAL_FLAGS} == ORIGINAL_FLAGS
    assert all(len(values[name].help) > 10 for name in values)
    page = (pathlib.Path(__file__).parents[2] / "docs" / "original.md").read_text(encoding="utf-8")
    new = re.findall(r"`--(\w+)`", re.search(r"New flags are (.+?)\.\n", page, re.DOTALL)[1])
    assert set(values) - ORIGINAL_FLAGS.keys() == set(new)


@pytest.mark.differs("Unknown flags")
def test_unknown_flags_and_values_are_a_user_error():
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    for flag in ("--seed=1.5", f"--{'x' * 300}=1", "--no\n=1"):
        with user_error():
            run_siamese.parse(["run_siamese", flag], values)
    # The shell has the same parser.
    refusal(*small_runs.finish(small_runs.start(["--train_batch_size=many"])), "train_batch_size", "many")


def test_what_only_the_encoder_or_the_data_tells_leaves_nothing(tmp_path, flag_values):
    for changes, part in (
        ({"max_seq_length": 25}, "--max_seq_length: found 25, expected 3 to 24"),
        ({"bert_hub": ""}, "--bert_hub"),
        ({"low_dim": 5}, "--low_dim: found 5"),
        ({"train_batch_size": 9, "num_logical_cpus": 2}, "--train_batch_size: found 9"),
        ({"num_train_epochs": 0.1}, "--num_train_epochs: found 0.1"),
    ):
        refused(flag_values, part, **changes)
    path = tmp_path / "STS-B" / "train.tsv"
    lines = path.read_text().splitlines(keepends=True)
    lines[5] = lines[5].rpartition("\t")[0] + "\tfour\n"
    path.write_text("".join(lines))
    refused(flag_values, "train.tsv, line 6, column 10", "'four'")
    assert not (tmp_path / "out").exists()


def test_an_untrained_encoder_predicts_without_a_run(tmp_path, flag_values):
    hardly = {"num_train_epochs": 1e-10, "sentence_embedding_type": "mean"}
    for name, changes in {"never": {"do_train": False}, "hardly": hardly}.items():
        assert small_runs.main(*small_runs.as_flags(flag_values, exp_name=name, do_eval=True, **changes))[0] == 0
        written = {"eval_results.txt", "test_results.json", "test_results.tsv"}
        assert {path.name for path in (tmp_path / "out" / name).iterdir()} == written
    hardly, never = ((tmp_path / "out" / name / "test_results.tsv").read_bytes() for name in ("hardly", "never"))
    assert hardly == never and b"nan" not in never
    assert "global_step = 0\n" in (tmp_path / "out" / "never" / "eval_results.txt").read_text()


@pytest.fixture(scope="module")
def flow_flags(tmp_path_factory, small_encoder_dir):
    """Settings of a flow run of 120 steps on cached embeddings."""
    changes = {"num_train_epochs": 40.0, "do_predict": True}
    return small_runs.flow_values(tmp_path_factory.mktemp("flow"), small_encoder_dir, **changes)


@pytest.fixture(scope="module")
def flow_run(flow_flags):
    return small_runs.run(flow_flags, exp_name="whole")


def test_a_killed_run_resumes_and_ends_in_the_same_bits(flow_flags, flow_run):
    run_dir = flow_run.parent / "killed"
    arguments = small_runs.as_flags(flow_flags, exp_name="killed", save_checkpoints_steps=2)
    process = small_runs.start(arguments)
    small_runs.wait_for(run_dir / "model.ckpt-10.index", process)
    process.kill()
    assert small_runs.finish(process)[0] == -signal.SIGKILL
    assert not (run_dir / TRAIN_RESULTS_FILE).exists()
    assert small_runs.main(*arguments)[0] == 0
    assert (run_dir / "test_results.tsv").read_bytes() == (flow_run / "test_results.tsv").read_bytes()
    small_runs.assert_same_bits(run_dir, flow_run)


def test_a_run_killed_before_its_results_writes_them(flow_flags, flow_run):
    predicted, learned = (flow_run / "test_results.tsv").read_bytes(), small_runs.checkpoint_variables(flow_run)
    (flow_run / "test_results.tsv").unlink()
    small_runs.run(flow_flags, exp_name="whole")
    assert (flow_run / "test_results.tsv").read_bytes() == predicted
    np.testing.assert_equal(small_runs.checkpoint_variables(flow_run), learned)


def test_files_of_a_run_have_the_users_modes(flow_flags, tmp_path):
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


def test_a_finished_run_without_its_checkpoint_predicts_nothing(flow_flags, flow_run):
    run_dir = shutil.copytree(flow_run, flow_run.parent / "without_checkpoint")
    settings = flow_flags | {"exp_name": run_dir.name, "do_predict_on_dev": True}
    # The file that names it is no loss.
    (run_dir / "checkpoint").unlink()
    assert small_runs.main(*small_runs.as_flags(settings))[0] == 0
    (run_dir / "dev_results.tsv").unlink()
    damage(run_dir / "model.ckpt-120")
    refused(settings, "finished run without its checkpoint of step 120", "--overwrite")
    assert not (run_dir / "dev_results.tsv").exists()


def test_an_interrupted_run_skips_a_damaged_checkpoint(flow_flags, flow_run, caplog):
    run_dir = flow_run.parent / "damaged"
    small_runs.run(flow_flags, exp_name="damaged", save_checkpoints_steps=50, do_predict=False)
    (run_dir / TRAIN_RESULTS_FILE).unlink()
    damage(run_dir / "model.ckpt-120")
    # A kill leaves such files of this program and of TensorFlow.
    (run_dir / ".config.json.tmp").touch()
    (run_dir / "model.ckpt-150_temp").mkdir()
    (run_dir / "model.ckpt-150.data-00000-of-00001").touch()
    assert small_runs.main(*small_runs.as_flags(flow_flags, exp_name="damaged", save_checkpoints_steps=50))[0] == 0
    assert f"Resumed from {run_dir}/model.ckpt-100" in caplog.text
    small_runs.assert_same_bits(run_dir, flow_run)
    assert not [path.name for path in run_dir.iterdir() if path.name.startswith(".") or "150" in path.name]


def test_a_run_that_is_in_use_is_refused(flow_flags, flow_run):
    # Another thread is refused as another process is.
    with locked(flow_run), concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(refused, flow_flags, f"{flow_run}: another process", exp_name="whole").result()


@pytest.mark.differs("is not scored with another")
def test_a_finished_run_and_another_run_are_refused(flow_flags, flow_run, tiny_encoder_dir):
    files = {path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()}
    other_model = {"sentence_embedding_type": "cls", "max_seq_length": 9, "low_dim": 4, "flow": 0, "flow_loss": 0}
    named = [f"{name} is " for name in (*other_model.keys() - {"flow", "flow_loss"}, "flow_model_config")]
    for changes, parts in (
        ({}, ["finished run", "--overwrite"]),
        ({"seed": 5}, ["other settings", "seed is 1234 there and 5 here", "--overwrite"]),
        ({"flow_learning_rate": 0.1, "max_seq_length": 9}, ["flow_learning_rate is 0.01", "max_seq_length is 10"]),
        ({"do_train": False, **other_model}, ["other settings", *named]),
        ({"do_train": False, "flow_model_config": "config_l2_d2_w32"}, ["other settings", "flow_model_config is "]),
        ({"do_train": False, "eval_checkpoint_name": "model.ckpt-7"}, ["model.ckpt-7"]),
        ({"do_train": False, "bert_hub": str(tiny_encoder_dir)}, [tiny_encoder_dir.name, "expected the recorded one"]),
    ):
        refused(flow_flags | {"exp_name": "whole"} | changes, *parts)
        assert {path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()} == files


def test_a_named_checkpoint_predicts_to_a_file_of_its_own(flow_flags, flow_run):
    results = []
    for name in ("model.ckpt-0", "model.ckpt-120"):
        small_runs.run(flow_flags, exp_name="whole", do_train=False, eval_checkpoint_name=name)
        results.append((flow_run / f"{name}.test_results.tsv").read_bytes())
    assert results[0] != results[1] == (flow_run / "test_results.tsv").read_bytes()


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
    started = {"exp_name": "started", "init_checkpoint": str(flow_run / "model.ckpt-120")}
    for changes in ({"exp_name": "whole"}, started, {"exp_name": "without", "flow": 0, "flow_loss": 0}):
        small_runs.run(alone, **changes)
    assert "is untrained" not in caplog.text
    run_dir = small_runs.run(alone, exp_name="no_run")
    assert f"{run_dir} has no checkpoint: its flow is untrained" in caplog.text
    assert (run_dir / "test_results.tsv").is_file()


def test_a_flow_begins_with_that_of_the_checkpoint_it_is_given(flow_flags, flow_run):
    given = {"exp_name": "second", "num_train_epochs": 1.0, "init_checkpoint": str(flow_run / "model.ckpt-120")}
    refused(flow_flags, "--flow_ddi: found true with a flow in --init_checkpoint", **given, flow_ddi=True)
    run_dir = small_runs.run(flow_flags, **given)
    start = small_runs.checkpoint_variables(run_dir, "model.ckpt-0")
    end = small_runs.checkpoint_variables(flow_run, "model.ckpt-120")
    flow = [key for key in end if key.startswith("flow/")]
    assert flow
    for key in flow:
        np.testing.assert_array_equal(start[key], end[key], err_msg=key)


@pytest.mark.differs("`do_senteval`")
@pytest.mark.differs("SentEval's scores")
def test_sentevals_tasks_are_scored_into_a_record(flow_flags, flow_run, tmp_path, capsys):
    folder = small_runs.write_senteval(tmp_path / "SentEval", small_runs.SMALL_WORDS)
    wanted = {"do_senteval": True, "senteval_tasks": "STS12, SST2", "senteval_dir": str(folder), "do_predict": False}
    values = flow_flags | wanted | {"exp_name": "whole", "do_train": False}
    for names, found in (("STS12,CRs", "found CRs, "), ("", "found nothing"), ("MR", "MR: no such folder")):
        refused(values, found, senteval_tasks=names)
    run_dir = small_runs.run(values)
    printed = capsys.readouterr().out
    assert re.findall("  (STS-12|senteval:sst2)  ", printed) == [*["STS-12"] * 3, "senteval:sst2"]
    written = json.loads((run_dir / "evaluation.json").read_text())
    assert written["made_by"]["command"] == "run_siamese"
    # `bert-flow evaluate` gives the same scores.
    tasks = read_tasks(["sts12", "senteval:sst2"], senteval_dir=folder, split=None)
    expected = msgspec.to_builtins(scores_of(BertFlow.load(run_dir), tasks))
    for key in ("model", "tasks", "without_flow"):
        assert written[key] == expected[key]
    reported = [(row.task, row.protocol) for row in score_rows(find_sources([run_dir]))]
    assert reported == [*(("STS-12", one) for one in ("wmean", "mean", "all")), ("senteval:sst2", None)]
    refused(values, "evaluation.json: exists", "--overwrite")

    def scored(folder):
        return json.loads((folder / "evaluation.json").read_text())["model"]

    # Scores of an encoder as it is, and after training.
    plain = {"flow": 0, "flow_loss": 0, "exp_name": "plain", "senteval_tasks": "SST2"}
    assert scored(small_runs.run(values | plain))["flow"] is None
    trained = {"do_train": True, "num_train_epochs": 1.0, "exp_name": "plain", "overwrite": True}
    assert scored(small_runs.run(values | trained))["checkpoint"].endswith("model.ckpt-3")
    # A checkpoint's scores are printed; they do not go into the record of the run that is named.
    capsys.readouterr()
    given = values | {"init_checkpoint": str(run_dir / "model.ckpt-120"), "exp_name": "plain"}
    assert scored(small_runs.run(given, overwrite=True))["checkpoint"].endswith("model.ckpt-3")
    assert capsys.readouterr().out == printed
    del given["exp_name"]
    assert small_runs.main(*small_runs.as_flags(given, original_protocol=True))[0] == 0
    original = capsys.readouterr().out
    assert "senteval:sst2 (norm 1, 5 folds) " in original
    by_task = [[line.split() for line in text.splitlines() if " STS-12 " in line] for text in (printed, original)]
    assert len(by_task[0]) == 3 and by_task[0] == by_task[1]
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
    run_dir = small_runs.Settings(**flow_flags | changes).output_dir
    refusal(status, stderr, "finite", tf.train.latest_checkpoint(str(run_dir)), after_log=True)
    assert not (run_dir / "test_results.tsv").exists()
    for path in run_dir.glob("model.ckpt-*.index"):
        for name, value in small_runs.checkpoint_variables(run_dir, path.stem).items():
            assert np.all(np.isfinite(value)) if value.dtype.kind == "f" else True, name
