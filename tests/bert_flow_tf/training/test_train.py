"""A run learns what it should and nothing else, the same on any number of replicas, and resumes in the same bits."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.data.tasks import get_task
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.model.build import checkpoint_of, restore
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from bert_flow_tf.runs.settings import Cluster, Settings
from bert_flow_tf.training import devices
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
    """Names of the encoder's variables that are no longer, bit for bit, among those of its SavedModel."""
    reader = tf.train.load_checkpoint(str(model.encoder.source.encoder_dir / "variables" / "variables"))
    original = {
        reader.get_tensor(name).tobytes()
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype.is_floating
    }
    return [name for name, v in model.encoder.variables_by_name.items() if v.numpy().tobytes() not in original]


@pytest.fixture(scope="module")
def still_encoder_dir(small_hugging_face_dir, tmp_path_factory):
    """Encoder folder of `small_hugging_face_dir` without dropout."""
    folder = tmp_path_factory.mktemp("still") / "hugging_face"
    shutil.copytree(small_hugging_face_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return write_encoder_folder(folder.parent / "encoder_folder", read_hugging_face(folder))


@pytest.fixture(scope="module")
def flow_values(tmp_path_factory, still_encoder_dir):
    """Settings of a flow run of 12 steps on the encoder without dropout."""
    return small_runs.flow_values(tmp_path_factory.mktemp("flow"), still_encoder_dir, num_train_epochs=4.0)


@pytest.fixture(scope="module")
def flow_run(flow_values):
    """Directory of that run, with its cosines."""
    return small_runs.run(flow_values, exp_name="whole", do_predict=True)


@pytest.mark.differs("all visible GPUs")
def test_all_visible_gpus_share_a_batch(monkeypatch):
    cpus = tf.config.list_physical_devices("CPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["0", "1"] if kind == "GPU" else cpus)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, grows: None)
    monkeypatch.setattr(devices, "_strategy", lambda kind, count: (kind, count))
    assert configure_devices(None) == ("gpu", 2)


@pytest.fixture(scope="module")
def dropout_values(tmp_path_factory, small_encoder_dir):
    """Settings of a supervised run of 10 steps on the encoder with dropout 0.5."""
    changes = {"num_train_epochs": 3.34, "learning_rate": 1e-3, "do_predict": True}
    return small_runs.values(tmp_path_factory.mktemp("dropout"), small_encoder_dir, **changes)


@pytest.fixture(scope="module")
def dropout_run(dropout_values):
    return small_runs.run(dropout_values, exp_name="whole")


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
def test_from_a_cache_the_flow_learns_the_same_but_for_dropout(flow_values, flow_run, small_encoder_dir):
    # The encoder has no dropout, so only the batches' padding and order of sums differ.
    settings, model, _ = train(flow_values, exp_name="cached", cache_embeddings=True)
    assert list(settings.output_dir.glob("embeddings-*")) and encoder_drift(model) == []
    losses = small_runs.logged(flow_run, "loss")
    np.testing.assert_allclose(small_runs.logged(settings.output_dir, "loss"), losses, rtol=1e-5)
    values = flow_values | {"bert_hub": str(small_encoder_dir)}
    dropped, cached = (
        small_runs.logged(train(values, exp_name=f"drops_{caches}", cache_embeddings=caches)[0].output_dir, "loss")
        for caches in (False, True)
    )
    assert np.abs(dropped - cached).max() > 1e-2


def test_a_frozen_encoder_drops_the_same_on_every_replica_and_after_an_interruption(flow_values, small_encoder_dir):
    values = flow_values | {"bert_hub": str(small_encoder_dir), "do_predict": True}
    whole = small_runs.run(values, exp_name="dropped")
    on_2 = small_runs.run(values, exp_name="dropped_on_2", num_logical_cpus=2)
    np.testing.assert_allclose(small_runs.logged(on_2, "loss"), small_runs.logged(whole, "loss"), rtol=1e-5)
    process = small_runs.start(small_runs.as_flags(values, exp_name="interrupted", save_checkpoints_steps=5))
    run_dir = whole.parent / "interrupted"
    small_runs.wait_for(run_dir / "model.ckpt-5.index", process)
    process.terminate()
    assert small_runs.finish(process)[0] == 130
    small_runs.run(values, exp_name="interrupted", save_checkpoints_steps=5)
    small_runs.assert_same_bits(run_dir, whole)


def test_replicas_of_one_global_batch_train_the_same_flow(flow_values, flow_run):
    run_dir = small_runs.run(flow_values, exp_name="on_4", num_logical_cpus=4)
    assert_same_training(run_dir, flow_run)


def assert_same_training(run_dir, other_dir):
    for name in ("loss", "flow_loss", "supervised_loss"):
        np.testing.assert_allclose(small_runs.logged(run_dir, name), small_runs.logged(other_dir, name), rtol=1e-5)
    first, second = small_runs.checkpoint_variables(run_dir), small_runs.checkpoint_variables(other_dir)
    assert first.keys() == second.keys()
    for key, value in first.items():
        if "/adam_" not in key and "optimizer" not in key:
            np.testing.assert_allclose(value, second[key], atol=1e-5, err_msg=key)


@pytest.fixture(scope="module")
def supervised_values(dropout_values, still_encoder_dir):
    """Settings of a supervised run of 3 steps on the encoder without dropout."""
    changes = {
        "bert_hub": str(still_encoder_dir),
        "num_train_epochs": 1.0,
        "warmup_proportion": 0.0,
        "do_predict": False,
    }
    return dropout_values | changes


def test_replicas_of_one_global_batch_train_the_same_encoder(supervised_values):
    supervised_run = small_runs.run(supervised_values, exp_name="supervised")
    run_dir = small_runs.run(supervised_values, exp_name="supervised_on_2", num_logical_cpus=2)
    for name in ("loss", "grad_norm"):
        one, many = small_runs.logged(supervised_run, name), small_runs.logged(run_dir, name)
        np.testing.assert_allclose(many, one, rtol=1e-5)
    assert_same_training(run_dir, supervised_run)


@pytest.fixture(scope="module")
def semi_supervised(dropout_values, flow_values):
    """Settings and model of a semi-supervised run of 10 steps, an epoch each, and both learning rates of each step."""
    values = dropout_values | {name: value for name, value in flow_values.items() if name.startswith("flow")}
    values |= {"exp_name": "semi", "num_examples": 6, "train_batch_size": 24, "num_train_epochs": 10.0}
    rates = []

    def evaluate(model):
        rates.append([one.learning_rate.numpy() for one in (model.optimizer, model.flow_optimizer)])
        return len(rates)

    settings, model, _ = train(values, evaluate, early_stopping=True, warmup_proportion=0.3)
    return settings, model, np.array(rates)


def test_a_runs_rate_warms_up_and_falls_to_zero_and_its_flows_rate_stays(semi_supervised):
    settings, _, rates = semi_supervised
    # Step t of 10, from 1: t / 3 in warm-up, then 1 - t / 10.
    shares = [1 / 3, 2 / 3, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]
    np.testing.assert_allclose(rates[:, 0], settings.learning_rate * np.array(shares), rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(rates[:, 1], settings.flow_learning_rate, rtol=1e-6)


def test_a_semi_supervised_run_moves_encoder_and_flow(semi_supervised):
    settings, model, _ = semi_supervised
    assert len(encoder_drift(model)) > 10
    before = small_runs.checkpoint_variables(settings.output_dir, "model.ckpt-8")
    after = small_runs.checkpoint_variables(settings.output_dir)
    flow = [name for name in after if name.startswith("flow/") and after[name].dtype.kind == "f"]
    assert sum(not np.array_equal(before[name], after[name]) for name in flow) > len(flow) / 2
    assert json.loads((settings.output_dir / "config.json").read_text())["encoder_trained"] is True


def test_nli_trains_encoder_and_classifier_and_reports_accuracy(dropout_values, flow_run, tmp_path):
    data = small_runs.write_mnli(tmp_path / "MNLI", small_runs.SMALL_WORDS)
    values = dropout_values | {"task_name": "MNLI", "data_dir": str(data), "do_predict": False, "num_train_epochs": 8.0}
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
    stsb = dropout_values | {"do_train": False, "exp_name": "nli"}
    small_runs.run(stsb)
    assert len((run_dir / "test_results.tsv").read_text().splitlines()) == 7
    with user_error("num_labels is None there and 3 here"):
        small_runs.run(
            values, exp_name=flow_run.name, output_parent_dir=str(flow_run.parent), do_train=False, do_eval=True
        )


@pytest.mark.differs("`--early_stopping`")
def test_early_stopping_ends_at_the_first_epoch_that_is_no_better(flow_values):
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


@pytest.mark.parametrize("replicas", [1, 2])
def test_early_stopping_scores_the_encoder_that_is_being_trained(dropout_values, replicas):
    changes = {"early_stopping": True, "do_eval": True, "do_predict": False, "num_train_epochs": 2.0}
    run_dir = small_runs.run(dropout_values, **changes, exp_name=f"early_{replicas}", num_logical_cpus=replicas)
    seen = json.loads((run_dir / "early_stopping.json").read_text())
    results = dict(line.split(" = ") for line in (run_dir / "eval_results.txt").read_text().splitlines())
    assert list(seen) == ["3", "6"][: len(seen)] and list(seen)[-1] == results["global_step"]
    assert list(seen.values())[-1] == pytest.approx(float(results["eval_pearsonr"]), abs=1e-6)


@pytest.mark.differs("`--flow_ddi`")
def test_initialisation_takes_first_sentences_of_a_batch_of_its_own(flow_values, small_encoder_dir):
    values = flow_values | {"bert_hub": str(small_encoder_dir)}
    settings, model, _ = train(values, exp_name="ddi", flow_ddi=True, num_train_epochs=0.34)
    tokenizer = Tokenizer.from_source(model.encoder.source)
    pairs, _ = read_training_data(settings, get_task("sts-b"), tokenizer)
    batches = token_batches(pairs, tokenizer, settings, 0, slice(None))
    first, second = (model.embed(inputs, training=True) for inputs, _ in batches.take(2))
    restore(checkpoint_of(model, with_encoder=False), settings.output_dir / "model.ckpt-0")
    np.testing.assert_allclose(model.flow.levels[0][0].b, -np.mean(first[::2], axis=0), atol=1e-5)
    (loss,) = small_runs.logged(settings.output_dir, "flow_loss")
    assert loss == pytest.approx(2 * np.mean(model.flow.bits_per_dim(second)), rel=1e-4)


def test_coupling_dropout_resumes_with_the_same_bits(flow_values, flow_run, tmp_path):
    config = tmp_path / "drops.json"
    config.write_text(json.dumps(small_runs.SMALL_FLOW | {"coupling_dropout": 0.5}))
    values = flow_values | {"flow_model_config": str(config), "save_checkpoints_steps": 5}
    whole = small_runs.run(values, exp_name="flow_drops")
    losses = small_runs.logged(whole, "flow_loss")
    assert np.abs(losses - small_runs.logged(flow_run, "flow_loss")).max() > 1e-3
    resumed = whole.parent / "flow_drops_again"
    shutil.copytree(whole, resumed, ignore=shutil.ignore_patterns("model.ckpt-1*", TRAIN_RESULTS_FILE))
    (resumed / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
    small_runs.run(values, exp_name=resumed.name)
    small_runs.assert_same_bits(resumed, whole)


def test_a_run_that_died_before_its_first_step_starts_again(flow_values, flow_run):
    died = flow_run.parent / "died"
    died.mkdir()
    shutil.copy(flow_run / "config.json", died)
    small_runs.run(flow_values, exp_name="died", do_predict=True)
    assert (died / "test_results.tsv").read_bytes() == (flow_run / "test_results.tsv").read_bytes()


def test_with_dropout_an_interrupted_run_ends_in_the_same_bits(dropout_values, dropout_run, monkeypatch):
    changes = {"exp_name": "terminated", "save_checkpoints_steps": 3}
    process = small_runs.start(small_runs.as_flags(dropout_values, **changes))
    run_dir = dropout_run.parent / "terminated"
    small_runs.wait_for(run_dir / "model.ckpt-3.index", process)
    process.terminate()
    status, stderr = small_runs.finish(process)
    assert status == 130, stderr
    assert "rerun the same command to resume" in stderr
    assert not (run_dir / TRAIN_RESULTS_FILE).exists()
    small_runs.run(dropout_values, **changes)
    assert (run_dir / "test_results.tsv").read_bytes() == (dropout_run / "test_results.tsv").read_bytes()
    small_runs.assert_same_bits(run_dir, dropout_run)
