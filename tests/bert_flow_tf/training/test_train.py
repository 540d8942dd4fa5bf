"""Training is the same on replicas, and resumes in the same bits."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.data.tasks import get_task
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.model.build import checkpoint_parts, restore
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from bert_flow_tf.runs.settings import Cluster, Settings
from bert_flow_tf.training import callbacks, devices
from bert_flow_tf.training import train as training
from bert_flow_tf.training.devices import configure_devices
from bert_flow_tf.training.pairs import read_training_data, token_batches
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error


def train(values, evaluate=None, **changes):
    """Settings, model and steps of a run trained in this process."""
    settings = Settings(**values | changes)
    strategy = configure_devices(settings.seed, num_logical_cpus=settings.num_logical_cpus)
    source = resolve_encoder(bert_hub=settings.bert_hub)
    model, _, steps = training.train(settings, get_task(settings.task_name), source, strategy, Cluster(), evaluate)
    return settings, model, steps


def encoder_drift(model):
    """Name the encoder's variables that differ from those of its SavedModel."""
    reader = tf.train.load_checkpoint(str(model.encoder.source.encoder_dir / "variables" / "variables"))
    original = {
        reader.get_tensor(name).tobytes()
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype.is_floating
    }
    return [name for name, v in model.encoder.variables_by_name.items() if v.numpy().tobytes() not in original]


@pytest.fixture(scope="module")
def still_encoder_dir(small_encoder_dir, tmp_path_factory):
    """The small encoder's folder without dropout."""
    folder = shutil.copytree(small_encoder_dir, tmp_path_factory.mktemp("still") / "encoder_folder")
    config = json.loads((folder / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "bert_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def flow_values(tmp_path_factory, still_encoder_dir):
    """Settings of 12 steps of a flow, on the encoder without dropout."""
    return small_runs.flow_values(tmp_path_factory.mktemp("flow"), still_encoder_dir, num_train_epochs=4.0)


@pytest.fixture(scope="module")
def flow_run(flow_values):
    """Directory of that run."""
    return small_runs.run(flow_values, exp_name="whole")


@pytest.fixture(scope="module")
def dropping_values(flow_values, small_encoder_dir):
    """Settings of the same run on the same weights with dropout 0.5."""
    return flow_values | {"bert_hub": str(small_encoder_dir)}


@pytest.fixture(scope="module")
def dropping_run(dropping_values):
    return small_runs.run(dropping_values, exp_name="dropping")


@pytest.fixture(scope="module")
def supervised_values(tmp_path_factory, small_encoder_dir):
    """Settings of 10 supervised steps, on the encoder with dropout 0.5."""
    changes = {"num_train_epochs": 3.34, "learning_rate": 1e-3, "do_predict": True}
    return small_runs.values(tmp_path_factory.mktemp("supervised"), small_encoder_dir, **changes)


@pytest.mark.differs("all visible GPUs")
def test_all_visible_gpus_share_a_batch(monkeypatch):
    cpus = tf.config.list_physical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["0", "1"] if kind == "GPU" else cpus)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, grows: None)
    monkeypatch.setattr(devices, "_strategy", lambda kind, count: (kind, count))
    assert configure_devices(None) == ("gpu", 2)


def test_a_flow_learns_while_its_run_is_recorded(flow_values, flow_run):
    losses = small_runs.logged(flow_run, "flow_loss")
    assert len(losses) == 12
    assert losses[-3:].mean() < losses[:3].mean() - 0.01
    results = json.loads((flow_run / TRAIN_RESULTS_FILE).read_text())
    assert results["steps"] == 12
    config = json.loads((flow_run / "config.json").read_text())
    assert config["encoder_trained"] is False and config["model"]["max_seq_length"] == 10
    assert config["model"]["flow"]["config"]["coupling_width"] == 8
    assert {"model.ckpt-0.index", "model.ckpt-12.index", "checkpoint"} <= {path.name for path in flow_run.iterdir()}


@pytest.mark.differs("`--cache_embeddings`")
def test_a_cache_of_embeddings_has_no_dropout(dropping_values, dropping_run, flow_run):
    settings, model, _ = train(dropping_values, exp_name="cached", cache_embeddings=True)
    assert list(settings.output_dir.glob("embeddings-*")) and encoder_drift(model) == []
    losses = small_runs.logged(flow_run, "loss")
    np.testing.assert_allclose(small_runs.logged(settings.output_dir, "loss"), losses, rtol=1e-5)
    assert np.abs(small_runs.logged(dropping_run, "loss") - losses).max() > 1e-2


def test_replicas_of_one_global_batch_train_the_same_flow(dropping_values, dropping_run):
    # A run died there before its first step.
    died = dropping_run.parent / "on_4"
    died.mkdir()
    shutil.copy(dropping_run / "config.json", died)
    assert_same_training(small_runs.run(dropping_values, exp_name="on_4", num_logical_cpus=4), dropping_run)


def assert_same_training(run_dir, other_dir):
    for name in ("loss", "flow_loss", "supervised_loss"):
        np.testing.assert_allclose(small_runs.logged(run_dir, name), small_runs.logged(other_dir, name), rtol=1e-5)
    first, second = small_runs.checkpoint_variables(run_dir), small_runs.checkpoint_variables(other_dir)
    assert first.keys() == second.keys()
    for key, value in first.items():
        if "/adam_" not in key and "optimizer" not in key:
            np.testing.assert_allclose(value, second[key], atol=1e-5, err_msg=key)


@pytest.mark.differs("`--early_stopping`")
def test_replicas_of_one_global_batch_train_the_same_encoder(supervised_values, still_encoder_dir):
    values = supervised_values | {"bert_hub": str(still_encoder_dir), "num_train_epochs": 1.0, "warmup_proportion": 0.0}
    values |= {"do_predict": False, "do_eval": True, "early_stopping": True}
    one, two = (small_runs.run(values, exp_name=f"on_{n}", num_logical_cpus=n) for n in (1, 2))
    np.testing.assert_allclose(small_runs.logged(two, "grad_norm"), small_runs.logged(one, "grad_norm"), rtol=1e-5)
    assert_same_training(two, one)
    for run_dir in (one, two):
        # The encoder that is being trained is scored.
        results = dict(line.split(" = ") for line in (run_dir / "eval_results.txt").read_text().splitlines())
        (score,) = json.loads((run_dir / "early_stopping.json").read_text()).items()
        assert score == (results["global_step"], pytest.approx(float(results["eval_pearsonr"]), abs=1e-6))


def test_a_semi_supervised_run_moves_encoder_and_flow(supervised_values, flow_values):
    values = supervised_values | {name: value for name, value in flow_values.items() if name.startswith("flow")}
    values |= {"exp_name": "semi", "num_examples": 6, "train_batch_size": 24, "num_train_epochs": 10.0}
    rates = []

    def evaluate(model):
        rates.append([one.learning_rate.numpy() for one in (model.optimizer, model.flow_optimizer)])
        return len(rates)

    settings, model, _ = train(values, evaluate, early_stopping=True, warmup_proportion=0.3)
    # The share at step t of 10 is t / 3 in warm-up, then 1 - t / 10. The flow's rate stays.
    shares = [1 / 3, 2 / 3, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]
    ours, flows = np.transpose(rates)
    np.testing.assert_allclose(ours, settings.learning_rate * np.array(shares), rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(flows, settings.flow_learning_rate, rtol=1e-6)
    assert len(encoder_drift(model)) > 10
    before = small_runs.checkpoint_variables(settings.output_dir, "model.ckpt-8")
    after = small_runs.checkpoint_variables(settings.output_dir)
    flow = [name for name in after if name.startswith("flow/") and after[name].dtype.kind == "f"]
    assert sum(not np.array_equal(before[name], after[name]) for name in flow) > len(flow) / 2
    assert json.loads((settings.output_dir / "config.json").read_text())["encoder_trained"] is True


def test_nli_trains_encoder_and_classifier(supervised_values, flow_run, tmp_path):
    data = small_runs.write_mnli(tmp_path / "MNLI", small_runs.SMALL_WORDS)
    values = supervised_values | {
        "task_name": "MNLI",
        "data_dir": str(data),
        "do_predict": False,
        "num_train_epochs": 8.0,
    }
    run_dir = small_runs.run(values, exp_name="nli", do_eval=True, dupe_factor=2, learning_rate=1e-2)
    results = dict(line.split(" = ") for line in (run_dir / "eval_results.txt").read_text().splitlines())
    assert "eval_accuracy" in results
    # Copies of a pair make no more steps: 24 pairs of 8, 8 times.
    assert results["global_step"] == "24"
    losses = small_runs.logged(run_dir, "loss")
    assert losses[-6:].mean() < losses[:6].mean()
    weights = [small_runs.checkpoint_variables(run_dir, name) for name in ("model.ckpt-0", "model.ckpt-24")]
    (key,) = (key for key in weights[0] if key.startswith("output_weights/.ATTRIBUTES"))
    assert weights[0][key].shape == (3, 24) and not np.array_equal(weights[0][key], weights[1][key])
    # Its encoder can be scored by similarity, its classifier stays unused; another task's run cannot classify.
    stsb = supervised_values | {"do_train": False, "exp_name": "nli"}
    small_runs.run(stsb)
    assert len((run_dir / "test_results.tsv").read_text().splitlines()) == 7
    with user_error("num_labels is None there and 3 here"):
        small_runs.run(
            values, exp_name=flow_run.name, output_parent_dir=str(flow_run.parent), do_train=False, do_eval=True
        )


@pytest.mark.differs("`--early_stopping`")
def test_early_stopping_ends_when_the_score_falls(flow_values):
    scores = iter([0.1, 0.3, 0.2])
    settings, _, steps = train(flow_values, lambda model: next(scores), exp_name="early", early_stopping=True)
    assert steps == 9
    assert {path.stem for path in settings.output_dir.glob("*.index")} >= {f"model.ckpt-{i}" for i in (3, 6, 9)}
    # Stopped before it could say that it is finished, it does not train on.
    (settings.output_dir / TRAIN_RESULTS_FILE).unlink()
    before = small_runs.checkpoint_variables(settings.output_dir)
    _, _, steps = train(flow_values, lambda model: 0.2, exp_name="early", early_stopping=True)
    assert steps == 9
    np.testing.assert_equal(small_runs.checkpoint_variables(settings.output_dir), before)
    assert (settings.output_dir / TRAIN_RESULTS_FILE).exists()


@pytest.mark.differs("`--flow_ddi`")
def test_initialisation_takes_a_batch_of_its_own(dropping_values):
    settings, model, _ = train(dropping_values, exp_name="ddi", flow_ddi=True, num_train_epochs=0.34)
    tokenizer = Tokenizer.from_source(model.encoder.source)
    pairs, _ = read_training_data(settings, get_task("sts-b"), tokenizer)
    batches = token_batches(pairs, tokenizer, settings, 0, slice(None))
    first, second = (model.embed(inputs, training=True) for inputs, _ in batches.take(2))
    restore(checkpoint_parts(model, with_encoder=False), settings.output_dir / "model.ckpt-0")
    np.testing.assert_allclose(model.flow.levels[0][0].b, -np.mean(first[::2], axis=0), atol=1e-5)
    (loss,) = small_runs.logged(settings.output_dir, "flow_loss")
    assert loss == pytest.approx(2 * np.mean(model.flow.bits_per_dim(second)), rel=1e-4)


def test_coupling_dropout_resumes_with_the_same_bits(dropping_values, dropping_run, tmp_path):
    config = tmp_path / "drops.json"
    config.write_text(json.dumps(small_runs.SMALL_FLOW | {"coupling_dropout": 0.5}))
    values = dropping_values | {"flow_model_config": str(config), "save_checkpoints_steps": 5}
    whole = small_runs.run(values, exp_name="flow_drops")
    losses = small_runs.logged(whole, "flow_loss")
    assert np.abs(losses - small_runs.logged(dropping_run, "flow_loss")).max() > 1e-3
    resumed = whole.parent / "flow_drops_again"
    shutil.copytree(whole, resumed, ignore=shutil.ignore_patterns("model.ckpt-1*", TRAIN_RESULTS_FILE))
    (resumed / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    small_runs.run(values, exp_name=resumed.name)
    small_runs.assert_same_bits(resumed, whole)


def test_an_interrupted_run_ends_in_the_same_bits(supervised_values, monkeypatch):
    whole = small_runs.run(supervised_values, exp_name="whole")
    interrupted = supervised_values | {"exp_name": "interrupted", "save_checkpoints_steps": 3}
    save = callbacks.save_checkpoint

    def save_and_stop(manager, step):
        save(manager, step)
        os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(callbacks, "save_checkpoint", save_and_stop)
        small_runs.run(interrupted)
    run_dir = whole.parent / "interrupted"
    assert tf.train.latest_checkpoint(str(run_dir)).endswith("-3") and not (run_dir / TRAIN_RESULTS_FILE).exists()
    small_runs.run(interrupted)
    assert (run_dir / "test_results.tsv").read_bytes() == (whole / "test_results.tsv").read_bytes()
    small_runs.assert_same_bits(run_dir, whole)
