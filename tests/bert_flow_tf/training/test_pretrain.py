"""A run of masked language modelling: the same on any number of replicas, and in the same bits after SIGKILL."""

import contextlib
import functools
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.model.build import encoder_record
from bert_flow_tf.runs.settings import PretrainingSettings
from bert_flow_tf.training.devices import configure_devices
from bert_flow_tf.training.pretrain import pretrain, run_folder
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

SENTENCES = [f"{a} {b} {c} ." for a in ("The", "the") for b in ("cat", "cats") for c in ("sat", "cat", "the", ". .")]
# Of the encoder with dropout .5, which is drawn again by every sentence's number.
SETTINGS = {
    "steps": 10,
    "num_warmup_steps": 2,
    "train_batch_size": 8,
    "max_seq_length": 9,
    "learning_rate": 0.01,
    "dev_fraction": 0.2,
    "save_checkpoints_steps": 5,
    # So that two halves of a batch have different numbers of predictions.
    "masked_lm_prob": 0.4,
}


def run(source, out, replicas=0, overwrite=False, report=lambda line: None, sentences=SENTENCES, **changes):
    settings = PretrainingSettings(**SETTINGS | changes)
    devices = functools.partial(configure_devices, num_logical_cpus=replicas)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_flow_tf.training.pretrain.tqdm.write", lambda line, file: report(line))
        patch.setattr("bert_flow_tf.training.pretrain.configure_devices", devices)
        return pretrain(sentences, source, out, settings, overwrite=overwrite)


def weights(out):
    reader = tf.train.load_checkpoint(str(out / "encoder" / "variables" / "variables"))
    names = [name for name, dtype in reader.get_variable_to_dtype_map().items() if dtype.is_floating]
    return {name: reader.get_tensor(name) for name in sorted(names)}


@pytest.fixture(scope="module")
def whole(small_source, tmp_path_factory):
    """Results and encoder folder of a run that nobody interrupted."""
    out = tmp_path_factory.mktemp("whole") / "encoder"
    return run(small_source, out), out


def test_the_encoder_learns_and_its_pooler_stays(whole, small_source):
    results, out = whole
    assert results.steps == 10 and list(results.dev_losses) == [0, 5, 10]
    before, after = weights(small_source.encoder_dir.parent), weights(out)
    same = [name for name, value in before.items() if np.array_equal(value, after[name])]
    assert before.keys() == after.keys() and len(same) == 2
    record = json.loads((out / "source.json").read_text())
    assert len(small_runs.logged(run_folder(out), "dev_loss")) == 3
    assert record["pooler"] == "as in the encoder that it started from"
    assert record["started_from"] == small_source.fingerprint
    learned = resolve_encoder(bert_hub=str(out))
    assert learned.fingerprint != small_source.fingerprint
    # What results on it say of it, and the model card.
    assert encoder_record(learned).fine_tuning == results.model.encoder.fine_tuning


def test_replicas_of_one_global_batch_learn_the_same(whole, small_source, tmp_path):
    results, out = whole
    on_2 = run(small_source, tmp_path / "on_2", replicas=2)
    assert on_2.model.encoder.fine_tuning == results.model.encoder.fine_tuning
    for name in ("loss", "grad_norm"):
        # Of the last step.
        one, two = (small_runs.logged(run_folder(folder), name) for folder in (out, tmp_path / "on_2"))
        np.testing.assert_allclose(two, one, rtol=1e-5)
        assert len(one) == 1
    for step, loss in results.dev_losses.items():
        assert on_2.dev_losses[step] == pytest.approx(loss, abs=1e-5)
    for name, value in weights(tmp_path / "on_2").items():
        np.testing.assert_allclose(value, weights(out)[name], rtol=0, atol=1e-5, err_msg=name)


def kill_after_five_steps(source, out, **changes):
    """Leaves the folder of a run, in a process of its own, that was killed after its checkpoint of the fifth step."""
    text = out.with_suffix(".txt")
    text.write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    settings = {name: value for name, value in (SETTINGS | changes).items() if value is not None}
    flags = {"bert_hub": source.encoder_dir.parent, "text": text, "out": out, **settings}
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_flow_tf.cli", "pretrain", *(f"--{name}={flags[name]}" for name in flags)],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    small_runs.wait_for(run_folder(out) / "model.ckpt-5.index", process)
    process.kill()
    process.communicate()
    assert not out.exists()


def test_killed_and_rerun_it_ends_in_the_same_bits(whole, small_source, tmp_path):
    results, out = whole
    again = tmp_path / "encoder"
    kill_after_five_steps(small_source, again)
    said = []
    resumed = run(small_source, again, report=said.append)
    # Killed before or after the dev loss of its checkpoint.
    assert [line.partition(":")[0] for line in said][-1] == "step 10 of 10" and len(said) <= 2
    assert resumed.dev_losses == results.dev_losses
    for name, value in weights(again).items():
        np.testing.assert_array_equal(value, weights(out)[name], err_msg=name)
    names = {path.name for path in run_folder(again).iterdir() if "tfevents" not in path.name}
    assert names == {"config.json", "dev_losses.json", "train_results.json"}


def test_a_run_of_other_settings_is_kept_without_overwrite(whole, small_source, tmp_path, capsys):
    _, out = whole
    with user_error(f"{out}: exists"):
        run(small_source, out)
    copy = tmp_path / "encoder"
    shutil.copytree(run_folder(out), run_folder(copy))
    with user_error("found a run with other settings (seed is 1234 there and 5 here)", "another folder"):
        run(small_source, copy, seed=5)
    with user_error("found a finished run without its checkpoint", "or --overwrite"):
        run(small_source, copy)
    assert run(small_source, copy, overwrite=True).steps == 10
    shutil.rmtree(copy)
    shutil.copytree(out, copy)
    begun = BertFlow.from_hub(small_source.encoder_dir.parent, pooling="cls", max_seq_length=9)
    capsys.readouterr()
    states = random.getstate(), np.random.get_state()[1].tolist()
    model = begun.pretrain(SENTENCES, copy, overwrite=True, **SETTINGS | {"seed": 5})
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert "step" not in capsys.readouterr().err
    assert json.loads((copy / "source.json").read_text())["training"]["seed"] == 5
    assert (model.sentence_embedding_type, model.max_seq_length, model.source.bert_hub) == ("cls", 9, str(copy))
    assert np.abs(model.encode("the cat") - begun.encode("the cat")).max() > 1e-2
    begun.pretrain(SENTENCES, tmp_path / "shown", show_progress_bar=True, **SETTINGS)
    shown = capsys.readouterr().err
    # The bar makes room for a line.
    assert re.search(r"\r *\rstep 5 of 10: dev loss", shown) and "10/10 [" in shown


def test_an_encoder_folder_that_could_not_be_written_is_all_that_is_left_to_do(whole, small_source, tmp_path):
    _, out = whole
    copy = tmp_path / "encoder"
    shutil.copytree(out, copy)
    shutil.copytree(run_folder(out), run_folder(copy))
    said = []

    def report(line):
        said.append(line)
        if line.startswith("step 10"):
            # There is no place for a folder's parts from here on.
            stack.enter_context(no_space(tmp_path))

    with contextlib.ExitStack() as stack, user_error("no space left"):
        run(small_source, copy, seed=7, overwrite=True, report=report)
    assert json.loads((copy / "source.json").read_text())["training"]["seed"] == 1234
    shutil.rmtree(copy)
    said.clear()
    run(small_source, copy, seed=7, report=said.append)
    assert said == []
    assert json.loads((copy / "source.json").read_text())["training"]["seed"] == 7


@contextlib.contextmanager
def no_space(folder):
    """No file may become larger than it could be for a record."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_dev_loss_that_is_not_finite_ends_training(small_source, tmp_path):
    # The weights after the first step are finite, and too large.
    with user_error("step 1: found a dev score of nan, expected a finite number"):
        run(small_source, tmp_path / "new", learning_rate=1e30, num_warmup_steps=0, save_checkpoints_steps=1)


def test_one_sentence_has_no_dev_loss(small_source, tmp_path):
    said = []
    results = run(small_source, tmp_path / "one", sentences=["the cat"], report=said.append)
    assert results.dev_losses == {} and said == []
