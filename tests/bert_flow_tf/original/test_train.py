"""Training is the same on replicas, and resumes in the same bits."""

import functools
import json
import os
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.original import pairs
from bert_flow_tf.original.build import checkpoint_parts, restore
from bert_flow_tf.original.pairs import ordered, read_training_data, token_batches
from bert_flow_tf.original.run import Run
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.training import callbacks, devices
from bert_flow_tf.training.devices import configure_devices
from bert_flow_tf.training.run_folder import TRAIN_RESULTS_FILE
from bert_flow_tf.training.run_records import read_config
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error


def train(values, evaluate=None, **changes):
    """Settings, model and steps of a run trained in this process."""
    settings = RunSettings.of(**values | changes)
    run = Run(settings.output_dir, settings)
    run.dev_score = lambda trained: evaluate(trained.model)
    trained = run.train()
    return settings, trained.model, trained.step


@pytest.fixture(scope="module")
def flow_values(tmp_path_factory, small_encoder_dir):
    """Settings of a flow's 12 steps on the encoder with dropout."""
    return small_runs.flow_values(
        tmp_path_factory.mktemp("flow"), small_encoder_dir, num_train_epochs=4.0
    )


@pytest.fixture(scope="module")
def flow_run(flow_values):
    return small_runs.run(flow_values, exp_name="whole")


@pytest.fixture(scope="module")
def supervised_values(tmp_path_factory, small_encoder_dir):
    return small_runs.values(
        tmp_path_factory.mktemp("supervised"), small_encoder_dir, learning_rate=1e-3
    )


@pytest.fixture(scope="module")
def nli_values(supervised_values, tmp_path_factory):
    data = small_runs.write_mnli(tmp_path_factory.mktemp("nli") / "MNLI", small_runs.SMALL_WORDS)
    changes = {
        "task_name": "MNLI",
        "data_dir": str(data),
        "num_train_epochs": 5.0,
        "learning_rate": 1e-2,
    }
    return supervised_values | changes | {"do_eval": True, "dupe_factor": 2}


@pytest.fixture(scope="module")
def nli_run(nli_values):
    return small_runs.run(nli_values, exp_name="nli")


@pytest.mark.differs("all visible GPUs")
def test_all_visible_gpus_share_a_batch(monkeypatch):
    cpus = tf.config.list_physical_devices("CPU")
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: ["0", "1"] if kind == "GPU" else cpus
    )
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, grows: None)
    monkeypatch.setattr(devices, "_strategy", lambda kind, count: (kind, count))
    assert configure_devices(None) == ("gpu", 2)


def test_replicas_of_one_global_batch_train_the_same_flow(flow_values, flow_run):
    # A run died there before its first step.
    died = flow_run.parent / "on_2"
    died.mkdir()
    shutil.copy(flow_run / "config.json", died)
    small_runs.assert_same_training(
        small_runs.run(flow_values, exp_name="on_2", num_logical_cpus=2), flow_run
    )


def test_replicas_of_one_global_batch_train_the_same_encoder(supervised_values):
    changes = {
        "num_train_epochs": 1.0,
        "warmup_proportion": 0.0,
        "do_eval": True,
        "early_stopping": True,
    }
    one, two = (
        small_runs.run(supervised_values, **changes, exp_name=f"on_{n}", num_logical_cpus=n)
        for n in (1, 2)
    )
    small_runs.assert_same_training(two, one)
    for run_dir in (one, two):
        # The encoder that is being trained is scored.
        results = dict(
            line.split(" = ") for line in (run_dir / "eval_results.txt").read_text().splitlines()
        )
        (score,) = json.loads((run_dir / "early_stopping.json").read_text()).items()
        assert score == (
            results["global_step"],
            pytest.approx(float(results["eval_pearsonr"]), abs=1e-6),
        )


def test_a_semi_supervised_run_moves_encoder_and_flow(supervised_values, flow_values):
    values = supervised_values | {
        name: value for name, value in flow_values.items() if name.startswith("flow")
    }
    values |= {
        "exp_name": "semi",
        "num_examples": 6,
        "train_batch_size": 24,
        "num_train_epochs": 10.0,
    }
    rates = []

    def evaluate(model):
        rates.append([one.learning_rate.numpy() for one in (model.optimizer, model.flow_optimizer)])
        return len(rates)

    settings, _, _ = train(values, evaluate, early_stopping=True, warmup_proportion=0.3)
    # The share at step t of 10 is t / 3 in warm-up, then 1 - t / 10. The flow's rate stays.
    shares = [1 / 3, 2 / 3, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]
    ours, flows = np.transpose(rates)
    np.testing.assert_allclose(
        ours, settings.training.learning_rate * np.array(shares), rtol=1e-5, atol=1e-10
    )
    np.testing.assert_allclose(flows, settings.training.flow_learning_rate, rtol=1e-6)
    before = small_runs.checkpoint_variables(settings.output_dir, "model.ckpt-8")
    after = small_runs.checkpoint_variables(settings.output_dir)
    for part in ("encoder/", "flow/"):
        names = [name for name in after if name.startswith(part) and after[name].dtype.kind == "f"]
        assert (
            sum(not np.array_equal(before[name], after[name]) for name in names) > len(names) / 2
        ), part
    config = read_config(settings.output_dir)
    assert (
        config.encoder_trained
        and config.model.encoder.fine_tuning.settings["warmup_proportion"] == 0.3
    )


def test_nli_trains_encoder_and_classifier(supervised_values, nli_values, nli_run, flow_run):
    results = dict(
        line.split(" = ") for line in (nli_run / "eval_results.txt").read_text().splitlines()
    )
    assert "eval_accuracy" in results
    # Copies of a pair make no more steps: 24 pairs of 8, 5 times.
    assert results["global_step"] == "15"
    losses = small_runs.logged(nli_run, "loss")
    assert losses[-6:].mean() < losses[:6].mean()
    # Its encoder can be scored by similarity, its classifier stays unused; another task's run
    # cannot classify.
    small_runs.run(supervised_values, exp_name="nli", do_train=False, do_predict=True)
    assert len((nli_run / "test_results.tsv").read_text().splitlines()) == 7
    other = {
        "output_parent_dir": str(flow_run.parent),
        "exp_name": flow_run.name,
        "do_train": False,
    }
    with user_error("num_labels is None, not 3"):
        small_runs.run(nli_values, **other)


@pytest.mark.differs("`--early_stopping`")
def test_early_stopping_ends_when_the_score_falls(flow_values):
    scores = iter([0.1, 0.3, 0.2])
    for _ in range(2):
        settings, _, steps = train(
            flow_values, lambda model: next(scores), exp_name="early", early_stopping=True
        )
        assert steps == 9
        names = {path.stem for path in settings.output_dir.glob("*.index")}
        assert names == {f"model.ckpt-{i}" for i in (3, 6, 9)}
        # Stopped before it could say that it is finished, it neither scores nor trains on.
        (settings.output_dir / TRAIN_RESULTS_FILE).unlink()


@pytest.mark.differs("`--cache_embeddings`")
@pytest.mark.differs("`--flow_ddi`")
@pytest.mark.parametrize(
    ("flag", "drops", "before"), [("flow_ddi", True, 1), ("cache_embeddings", False, 0)]
)
def test_initialisation_takes_a_batch_and_a_cache_no_dropout(flow_values, flag, drops, before):
    settings, model, _ = train(flow_values, exp_name=flag, num_train_epochs=0.34, **{flag: True})
    assert bool(list(settings.output_dir.glob("embeddings-*"))) == (not drops)
    tokenizer = model.encoder.source.tokenizer()
    data, _ = read_training_data(settings.data, tokenizer, 10, 0, seed=1234)
    pack = functools.partial(tokenizer.pack, max_seq_length=10)
    batches = token_batches(data, ordered(len(data.labels), 8, seed=1234), pack, 0, slice(None))
    embeddings = [model.embed(inputs, training=drops) for inputs, _ in batches.take(2)]
    restore(checkpoint_parts(model, with_encoder=False), settings.output_dir / "model.ckpt-0")
    if before:
        np.testing.assert_allclose(
            model.flow.levels[0][0].b, -np.mean(embeddings[0][::2], axis=0), atol=1e-5
        )
    (loss,) = small_runs.logged(settings.output_dir, "flow_loss")
    assert loss == pytest.approx(2 * np.mean(model.flow.bits_per_dim(embeddings[before])), rel=1e-4)


@pytest.mark.parametrize(
    ("cached", "sentences_ahead", "step"), [(True, 2048, 6), (False, 64, 4), (False, 2048, 0)]
)
def test_more_epochs_continue_a_flow_in_the_same_bits(
    flow_values, cached, sentences_ahead, step, monkeypatch
):
    # Four steps of 8 pairs, or all steps, are embedded together.
    monkeypatch.setattr(pairs, "SENTENCES_AHEAD", sentences_ahead)
    values = flow_values | {
        "cache_embeddings": cached,
        "save_checkpoints_steps": 4,
        "do_eval": True,
    }
    name = f"{'cached' if cached else 'dropout'}_{sentences_ahead}"
    whole = small_runs.run(values, exp_name=f"{name}_whole")
    run_dir = small_runs.run(values, exp_name=f"{name}_longer", num_train_epochs=2.0)
    shorter = (run_dir / "eval_results.txt").read_bytes()
    restored = []
    restore = callbacks.Checkpoints.restore

    def restore_and_keep(*given):
        restored.append(restore(*given))
        return restored[-1]

    monkeypatch.setattr(callbacks.Checkpoints, "restore", restore_and_keep)
    small_runs.run(values, exp_name=f"{name}_longer")
    small_runs.assert_same_bits(run_dir, whole)
    assert restored == [f"{run_dir}/model.ckpt-{step}"]
    assert (run_dir / "eval_results.txt").read_bytes() == (whole / "eval_results.txt").read_bytes()
    assert (run_dir / "model.ckpt-6.eval_results.txt").read_bytes() == shorter


def test_more_epochs_of_an_encoder_are_refused(nli_values, nli_run):
    before = {path.name: path.read_bytes() for path in nli_run.iterdir() if path.is_file()}
    with user_error("num_train_epochs is 5.0, not 6.0", "learning rate depends"):
        small_runs.run(nli_values, exp_name="nli", num_train_epochs=6.0)
    with user_error("num_train_epochs is 5.0, not 4.0"):
        small_runs.run(nli_values, exp_name="nli", num_train_epochs=4.0)
    after = {path.name: path.read_bytes() for path in nli_run.iterdir() if path.is_file()}
    assert after == before


def test_an_interrupted_run_ends_in_the_same_bits(nli_values, nli_run, monkeypatch):
    interrupted = nli_values | {"exp_name": "interrupted", "save_checkpoints_steps": 3}
    save = callbacks.save_checkpoint

    def save_and_stop(manager, step):
        save(manager, step)
        if step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(callbacks, "save_checkpoint", save_and_stop)
        small_runs.run(interrupted)
    run_dir = nli_run.parent / "interrupted"
    assert (
        tf.train.latest_checkpoint(str(run_dir)).endswith("-3")
        and not (run_dir / TRAIN_RESULTS_FILE).exists()
    )
    small_runs.run(interrupted)
    assert (run_dir / "eval_results.txt").read_bytes() == (
        nli_run / "eval_results.txt"
    ).read_bytes()
    small_runs.assert_same_bits(run_dir, nli_run)
