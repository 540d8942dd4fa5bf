"""The original's command line: its flags, its runs, and its mistakes."""

import concurrent.futures
import json
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
from bert_flow_tf.common.atomic import locked
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.original.start import check_flow_is_trained
from bert_flow_tf.report.collected import read_result
from bert_flow_tf.tasks.scored_tasks import read_task
from bert_flow_tf.tasks.scores import Scores
from bert_flow_tf.tasks.scoring import scores_of
from bert_flow_tf.training.run_folder import TRAIN_RESULTS_FILE
from tests.bert_flow_tf import small_runs
from tests.refusals import refusal, user_error

# The original's flags and defaults; None where it has none, or where the vocabulary decides.
ORIGINAL_FLAGS = {
    **dict.fromkeys(
        ("bert_config_file", "task_name", "vocab_file", "init_checkpoint", "data_dir"), None
    ),
    **dict.fromkeys(
        ("output_parent_dir", "exp_name", "exp_name_prefix", "cached_dir", "eval_checkpoint_name"),
        None,
    ),
    **dict.fromkeys(
        ("do_train", "do_eval", "do_predict", "early_stopping", "use_xla", "auc", "do_senteval"),
        False,
    ),
    **dict.fromkeys(("predict_pool", "do_predict_on_dev", "do_predict_on_full"), False),
    **{
        "do_lower_case": None,
        "max_seq_length": 128,
        "label_min": 0.0,
        "label_max": 5.0,
        "seed": 1234,
    },
    **{
        "log_every_step": 10,
        "save_checkpoints_steps": 1000,
        "train_batch_size": 32,
        "learning_rate": 5e-5,
    },
    **{
        "num_train_epochs": 3.0,
        "warmup_proportion": 0.1,
        "start_delay_secs": 120,
        "throttle_secs": 600,
    },
    **{"eval_batch_size": 8, "predict_batch_size": 8, "sentence_embedding_type": "avg"},
    **{
        "flow": 0,
        "flow_loss": 0,
        "flow_learning_rate": 1e-3,
        "flow_model_config": "config_l3_d3_w32",
    },
    **{
        "num_examples": -1,
        "use_full_for_training": 0,
        "dupe_factor": 1,
        "l2_penalty": -1.0,
        "low_dim": -1,
    },
    **{"senteval_tasks": ""},
}


@pytest.fixture(scope="module")
def flow_flags(tmp_path_factory, small_encoder_dir):
    """Settings of a flow run with dropout in encoder and flow."""
    folder = tmp_path_factory.mktemp("flow")
    changes = {
        "num_train_epochs": 4.0,
        "save_checkpoints_steps": 10,
        "do_eval": True,
        "do_predict": True,
    }
    values = small_runs.flow_values(
        folder, small_encoder_dir, cached_dir=str(folder / "cached"), **changes
    )
    small_runs.small_flow_file(folder, coupling_dropout=0.5)
    return values


@pytest.fixture(scope="module")
def flow_run(flow_flags):
    return small_runs.run(flow_flags, exp_name="whole")


def refused(settings, *parts, **changes):
    """Check that the command line ends with these parts in one line."""
    refusal(*small_runs.main(*small_runs.as_flags(settings, **changes)), *parts, after_log=True)


def test_flags_have_the_originals_defaults_and_descriptions():
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    assert {name: values[name].default for name in ORIGINAL_FLAGS} == ORIGINAL_FLAGS
    page = (pathlib.Path(__file__).parents[2] / "docs" / "original.md").read_text(encoding="utf-8")
    new = re.findall(r"`--(\w+)`", re.search(r"New flags are (.+?)\.\n", page, re.DOTALL)[1])
    assert set(values) - ORIGINAL_FLAGS.keys() == set(new)


@pytest.mark.differs("Unknown flags")
def test_a_mistake_in_the_shell_is_one_line():
    refusal(
        *small_runs.finish(small_runs.start(["--train_batch_size=many"])),
        "train_batch_size",
        "many",
    )


def test_what_only_encoder_or_data_tell_leaves_nothing(tmp_path, flow_flags, flow_run):
    path = small_runs.write_stsb(tmp_path / "STS-B") / "train.tsv"
    lines = path.read_text().splitlines(keepends=True)
    lines[5] = lines[5].rpartition("\t")[0] + "\tfour\n"
    path.write_text("".join(lines))
    for changes, *parts in (
        (
            {"max_seq_length": 25},
            "--max_seq_length: found 25, expected a whole number from 3 to 10",
        ),
        ({"bert_hub": ""}, "--bert_hub"),
        ({"low_dim": 5}, "--low_dim: found 5"),
        ({"train_batch_size": 9, "num_logical_cpus": 2}, "--train_batch_size: found 9"),
        ({"num_train_epochs": 0.1}, "--num_train_epochs: found 0.1"),
        (
            {"flow_ddi": True, "init_checkpoint": flow_run / "model.ckpt-12"},
            "--flow_ddi: found true with a flow",
        ),
        ({"data_dir": path.parent}, "train.tsv, line 6, column 10", "'four'"),
    ):
        refused(flow_flags, *parts, output_parent_dir=tmp_path / "out", exp_name="run", **changes)
    assert not (tmp_path / "out").exists()


def test_what_has_learned_nothing_predicts_without_a_run(flow_flags, flow_run):
    plain = flow_flags | {"flow": 0, "flow_loss": 0}
    hardly = {"num_train_epochs": 1e-10, "sentence_embedding_type": "mean"}
    for name, changes in {"never": {"do_train": False}, "hardly": hardly}.items():
        assert small_runs.main(*small_runs.as_flags(plain, exp_name=name, **changes))[0] == 0
        names = ("eval_results", "test_results")
        written = {f"{one}.json" for one in names} | {"eval_results.txt", "test_results.tsv"}
        assert {path.name for path in (flow_run.parent / name).iterdir()} == written
    hardly, never = (
        (flow_run.parent / name / "test_results.tsv").read_bytes() for name in ("hardly", "never")
    )
    assert hardly == never and b"nan" not in never
    assert "global_step = 0\n" in (flow_run.parent / "never" / "eval_results.txt").read_text()
    small_runs.run(
        flow_flags,
        do_train=False,
        exp_name="started",
        init_checkpoint=str(flow_run / "model.ckpt-12"),
    )


@pytest.mark.differs("A flow without a checkpoint")
def test_a_flow_that_nothing_trained_is_not_scored(flow_flags, flow_run, tiny_trio):
    mistyped = f"{flow_run.name}x"
    refused(
        flow_flags, f"--exp_name: found no run in {flow_run}x", f"did you mean {flow_run.name}?",
        do_train=False, exp_name=mistyped,
    )  # fmt: skip
    assert not flow_run.with_name(mistyped).exists()
    scored_alone = {"do_train": False, "do_predict": False, "do_eval": False, "do_senteval": True}
    with user_error("init_checkpoint: missing"):
        check_flow_is_trained(RunSettings.of(**flow_flags | scored_alone | {"exp_name": None}))
    without_hub = {name: value for name, value in flow_flags.items() if name != "bert_hub"}
    refused(
        without_hub | tiny_trio, "--init_checkpoint: found no flow in",
        do_train=False, exp_name="no_flow",
    )  # fmt: skip


_KILLED_AT_STEP_4 = """
import os, runpy, signal
from bert_flow_tf.common.errors import quiet_libraries
quiet_libraries()  # It makes the import faster, as in other runs.
from bert_flow_tf.training import callbacks

def save_and_die(manager, step, save=callbacks.save_checkpoint):
    save(manager, step)
    if step == 4:
        os.kill(os.getpid(), signal.SIGKILL)

callbacks.save_checkpoint = save_and_die
runpy.run_module("bert_flow_tf.run_siamese", run_name="__main__")
"""


def test_a_killed_run_resumes_and_ends_in_the_same_bits(flow_flags, flow_run):
    run_dir = flow_run.parent / "killed"
    arguments = small_runs.as_flags(flow_flags, exp_name="killed", save_checkpoints_steps=2)
    assert small_runs.finish(small_runs.start(arguments, _KILLED_AT_STEP_4))[0] == -signal.SIGKILL
    assert not (run_dir / TRAIN_RESULTS_FILE).exists()
    assert small_runs.main(*arguments)[0] == 0
    assert (run_dir / "test_results.tsv").read_bytes() == (
        flow_run / "test_results.tsv"
    ).read_bytes()
    small_runs.assert_same_bits(run_dir, flow_run)


@pytest.fixture
def damaged(flow_run, tmp_path):
    """A copy of the run whose last checkpoint is damaged."""
    run_dir = shutil.copytree(flow_run, tmp_path / "damaged")
    (path,) = run_dir.glob("model.ckpt-12.data-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return run_dir


def test_a_finished_run_without_its_checkpoint_predicts_nothing(flow_flags, flow_run, damaged):
    settings = flow_flags | {"do_predict_on_dev": True}
    whole = shutil.copytree(flow_run, damaged.with_name("whole"))
    # The file that names the checkpoint is no loss.
    (whole / "checkpoint").unlink()
    small_runs.run(settings, output_parent_dir=str(whole.parent), exp_name="whole")
    parts = ("finished run without its checkpoint of step 12", "--overwrite")
    refused(settings, *parts, output_parent_dir=damaged.parent, exp_name="damaged")
    assert (whole / "dev_results.tsv").exists() and not (damaged / "dev_results.tsv").exists()


def test_an_interrupted_run_skips_a_damaged_checkpoint(flow_flags, flow_run, damaged, caplog):
    (damaged / TRAIN_RESULTS_FILE).unlink()
    # A kill leaves such files of this program and of TensorFlow.
    (damaged / ".config.json.tmp").touch()
    (damaged / "model.ckpt-15_temp").mkdir()
    (damaged / "model.ckpt-15.data-00000-of-00001").touch()
    settings = flow_flags | {"output_parent_dir": str(damaged.parent), "exp_name": "damaged"}
    assert small_runs.main(*small_runs.as_flags(settings))[0] == 0
    assert f"Resumed from {damaged}/model.ckpt-10" in caplog.text
    small_runs.assert_same_bits(damaged, flow_run)
    assert not [
        path.name for path in damaged.iterdir() if path.name.startswith((".", "model.ckpt-15"))
    ]


@pytest.mark.differs("is not scored with another")
def test_a_finished_run_is_kept(flow_flags, flow_run, tiny_encoder_dir, caplog):
    files = {path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()}
    other_model = {
        "sentence_embedding_type": "cls",
        "max_seq_length": 9,
        "low_dim": 4,
        "flow": 0,
        "flow_loss": 0,
    }
    named = [
        f"{name} is " for name in (*other_model.keys() - {"flow", "flow_loss"}, "flow_model_config")
    ]
    for changes, parts in (
        (
            {"flow_learning_rate": 0.1, "max_seq_length": 9},
            ["flow_learning_rate is 0.01", "max_seq_length is 10"],
        ),
        ({"do_train": False, **other_model}, ["other settings", *named]),
        ({"do_train": False, "eval_checkpoint_name": "model.ckpt-7"}, ["model.ckpt-7"]),
        (
            {"do_train": False, "bert_hub": str(tiny_encoder_dir)},
            [tiny_encoder_dir.name, "as recorded"],
        ),
    ):
        refused(flow_flags | {"exp_name": "whole"} | changes, *parts)
        assert {
            path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()
        } == files
    assert small_runs.main(*small_runs.as_flags(flow_flags | {"exp_name": "whole"}))[0] == 0
    assert f"Nothing to do: {flow_run}: found a finished run" in caplog.messages[-1]
    assert {path.name: path.read_bytes() for path in flow_run.iterdir() if path.is_file()} == files
    # Another thread is refused as another process is.
    with locked(flow_run), concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(
            refused, flow_flags, f"{flow_run}: another process", exp_name="whole"
        ).result()


def test_a_finished_run_is_scored_again_and_by_a_checkpoint(flow_flags, flow_run):
    evaluated, learned = (
        (flow_run / "eval_results.txt").read_bytes(),
        small_runs.checkpoint_variables(flow_run),
    )
    # No label counts, so the supervised loss is zero, as in the original.
    assert b"eval_loss = 0.0\n" in evaluated
    names = ("model.ckpt-0", "model.ckpt-12")
    for changes in ({}, *({"do_train": False, "eval_checkpoint_name": name} for name in names)):
        (flow_run / "eval_results.txt").unlink()
        small_runs.run(flow_flags, exp_name="whole", **changes)
        assert (flow_run / "eval_results.txt").read_bytes() == evaluated
    np.testing.assert_equal(small_runs.checkpoint_variables(flow_run), learned)
    first, last = ((flow_run / f"{name}.test_results.tsv").read_bytes() for name in names)
    assert first != last == (flow_run / "test_results.tsv").read_bytes()


def test_a_flow_begins_with_that_of_the_checkpoint_it_is_given(flow_flags, flow_run):
    given = {
        "exp_name": "second",
        "num_train_epochs": 0.34,
        "init_checkpoint": str(flow_run / "model.ckpt-12"),
    }
    start = small_runs.checkpoint_variables(small_runs.run(flow_flags, **given), "model.ckpt-0")
    end = small_runs.checkpoint_variables(flow_run, "model.ckpt-12")
    flow = [key for key in end if key.startswith("flow/")]
    assert flow
    for key in flow:
        np.testing.assert_array_equal(start[key], end[key], err_msg=key)


@pytest.mark.differs("`do_senteval`")
@pytest.mark.differs("SentEval's scores")
def test_sentevals_tasks_are_scored_into_a_record(flow_flags, flow_run, tmp_path, capsys):
    folder = small_runs.write_senteval(tmp_path / "SentEval", small_runs.SMALL_WORDS)
    wanted = {"do_senteval": True, "senteval_tasks": " STS12", "senteval_dir": str(folder)}
    values = (
        flow_flags
        | wanted
        | {"exp_name": "whole", "do_train": False, "do_eval": False, "do_predict": False}
    )
    for names, found in (
        ("STS12,SST5", "--senteval_tasks: unknown task 'SST5', expected one of sts12, "),
        ("", "--senteval_tasks: unknown task ''"),
        ("STS13", "no such folder"),
    ):
        refused(values, found, senteval_tasks=names)
    # One of two is missing: the other is scored.
    both = small_runs.as_flags(values, senteval_tasks="STS13,STS-12")
    refusal(*small_runs.main(*both), "not scored: ", "STS13", "no such folder", after_log=True)
    printed = capsys.readouterr().out
    run_dir = flow_run
    written = json.loads((run_dir / "evaluation.json").read_text())
    assert written["made_by"]["command"] == "run_siamese"
    # `bert-flow evaluate` gives the same scores.
    expected = msgspec.to_builtins(
        scores_of("", BertFlow.load(run_dir), [read_task("sts12", senteval_dir=folder)])
    )
    assert written["runs"] == expected["runs"]
    # A checkpoint's scores are printed; they do not go into the record of the run that is named.
    again = {"init_checkpoint": str(run_dir / "model.ckpt-12")}
    assert small_runs.main(*small_runs.as_flags(values, **again))[0] == 0
    original = capsys.readouterr().out
    by_task = [
        [line.split() for line in text.splitlines() if " STS-12 " in line]
        for text in (printed, original)
    ]
    assert len(by_task[0]) == 1 and by_task[0] == by_task[1]
    assert json.loads((run_dir / "evaluation.json").read_text()) == written
    (run_dir / "evaluation.json").unlink()
    trained = {
        "do_train": True,
        "num_train_epochs": 0.34,
        "exp_name": "trained",
        "senteval_tasks": "STS12",
    }
    scores = json.loads((small_runs.run(values | trained) / "evaluation.json").read_text())
    assert scores["runs"][0]["model"]["checkpoint"].endswith("model.ckpt-1")
    # The same command finds its finished run, and has nothing to do.
    again = small_runs.run(values | trained) / "evaluation.json"
    assert json.loads(again.read_text()) == scores


@pytest.mark.differs("SentEval's transfer tasks")
def test_a_transfer_task_is_scored_though_another_is_missing(
    flow_flags, flow_run, tmp_path, capsys
):
    folder = small_runs.write_mrpc(tmp_path / "downstream" / "MRPC", small_runs.SMALL_WORDS)
    values = flow_flags | {
        "exp_name": "whole",
        "do_train": False,
        "do_eval": False,
        "do_predict": False,
        "do_senteval": True,
        "senteval_tasks": "MRPC,MR",
        "senteval_dir": str(tmp_path),
        "overwrite": True,
    }
    refused(values, "not scored: ", f"{tmp_path / 'MR'}: no such folder")
    (row,) = (line for line in capsys.readouterr().out.splitlines() if " MRPC " in line)
    written = read_result(flow_run / "evaluation.json")
    assert isinstance(written, Scores)
    for scores in (written.tasks, written.without_flow):
        found = scores["mrpc"]
        assert (found.metric, found.pairs, found.source) == ("accuracy", 20, str(folder))
        assert f"{100 * found.by_metric['accuracy']['all']:.2f}" in row
    f1 = written.tasks["mrpc"].by_metric["f1"]["all"]
    assert " accuracy     20  " in row and f"{100 * f1:.2f}" in row
    model = BertFlow.load(flow_run)
    task = read_task("mrpc", senteval_dir=tmp_path)
    assert model.evaluate(task).tasks == written.tasks
    (flow_run / "evaluation.json").unlink()


def test_xla_gives_the_same_losses(flow_flags, tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path}")
    # XLA draws other masks of the flow's dropout.
    changes = {"flow_model_config": small_runs.small_flow_file(tmp_path), "num_train_epochs": 1.0}
    values = flow_flags | changes | {"do_eval": False, "do_predict": False}
    status, stderr = small_runs.finish(
        small_runs.start(small_runs.as_flags(values, exp_name="xla", use_xla=True))
    )
    assert status == 0, stderr
    assert list(tmp_path.glob("*cluster*")), "nothing was compiled"
    run_dir = small_runs.run(values, exp_name="plain")
    losses = small_runs.logged(run_dir.with_name("xla"), "flow_loss")
    np.testing.assert_allclose(losses, small_runs.logged(run_dir, "flow_loss"), rtol=1e-4)


def test_a_flow_that_diverges_stops_with_its_last_good_state(flow_flags, flow_run):
    changes = {"exp_name": "diverged", "flow_learning_rate": 1e20, "save_checkpoints_steps": 1}
    status, stderr = small_runs.main(*small_runs.as_flags(flow_flags, **changes))
    run_dir = flow_run.with_name("diverged")
    refusal(status, stderr, "finite", tf.train.latest_checkpoint(str(run_dir)), after_log=True)
    assert not (run_dir / "test_results.tsv").exists()
