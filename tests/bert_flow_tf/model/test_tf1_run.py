"""Checkpoints of the original's training become bert_flow_tf runs, and the reverse."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from glow.config import GlowConfig
from glow.flow import Glow
from glow.tf1_checkpoint import tf1_variables
from tests.bert_flow_tf import small_runs
from tests.refusals import refused, succeeds

SENTENCES = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]


@pytest.fixture(scope="module")
def arrays(golden_dir, tmp_path_factory):
    """What a checkpoint of the original holds: BERT, flow, classifier, the optimisers' moments, the step."""
    reader = tf.train.load_checkpoint(str(golden_dir / "bert_tiny" / "bert_model.ckpt"))
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    config = GlowConfig.load(small_runs.small_flow_file(tmp_path_factory.mktemp("flow")))
    flow = Glow(config, 32, seed=3)
    rng = np.random.default_rng(0)
    for variable in flow.trainable_variables:
        variable.assign_add(0.01 * rng.normal(size=variable.shape))
    arrays |= tf1_variables(flow)
    arrays["loss/output_weights"] = rng.normal(size=(3, 96)).astype(np.float32)
    return arrays | {"global_step": np.int64(7)}


@pytest.fixture
def workplace(golden_dir, tmp_path, tiny_trio, monkeypatch):
    """Folder with BERT's configuration and vocabulary in `tf1`, and a configuration of the flow."""
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
    (tmp_path / "tf1").mkdir()
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(golden_dir / "bert_tiny" / name, tmp_path / "tf1")
    small_runs.small_flow_file(tmp_path)
    return tmp_path


def flags(folder, **changes):
    values = {
        "tf1_flow": folder / "tf1",
        "out": folder / "run",
        "sentence_embedding_type": "avg-last-2",
        "flow_model_config": folder / "small_flow.json",
        "max_seq_length": 8,
    }
    return [f"--{name}={value}" for name, value in (values | changes).items() if value is not None]


def test_there_and_back_gives_the_same_bits(workplace, arrays, write_tf1_checkpoint):
    moments = {
        f"{name}/adam_{kind}": np.zeros_like(value)
        for name, value in arrays.items()
        if value.ndim and "invertible" not in name
        for kind in "mv"
    }
    write_tf1_checkpoint(workplace / "tf1" / "model.ckpt-7", arrays | moments)
    assert succeeds("convert", *flags(workplace)) == f"written: {workplace / 'run'}\n"
    succeeds("convert", "--run", workplace / "run", "--to_tf1", "--out", workplace / "back")
    assert tf.train.latest_checkpoint(str(workplace / "back")) == str(workplace / "back" / "model.ckpt-7")
    back = tf.train.load_checkpoint(str(workplace / "back" / "model.ckpt-7"))
    assert set(back.get_variable_to_shape_map()) == set(arrays)
    for name, value in arrays.items():
        found = back.get_tensor(name)
        assert np.asarray(found).dtype == value.dtype, name
        np.testing.assert_array_equal(found, value, err_msg=name)
    # What was written is what the original, and this command, begin with.
    assert (workplace / "back" / "vocab.txt").read_bytes() == (workplace / "tf1" / "vocab.txt").read_bytes()
    assert json.loads((workplace / "back" / "bert_config.json").read_text())["hidden_act"] == "gelu"
    succeeds("convert", *flags(workplace, tf1_flow=workplace / "back", out=workplace / "again"))
    embeddings = [BertFlow.load(workplace / name).encode(SENTENCES) for name in ("run", "again")]
    np.testing.assert_array_equal(*embeddings)


def test_a_flow_without_its_encoder_takes_one_by_handle(workplace, arrays, write_tf1_checkpoint, tiny_encoder_dir):
    write_tf1_checkpoint(workplace / "tf1" / "whole", arrays)
    flow = {name: value for name, value in arrays.items() if name.startswith("bert/flow/")}
    write_tf1_checkpoint(workplace / "tf1" / "flow.ckpt-7", flow)
    for name, encoder in (("whole", {}), ("flow.ckpt-7", {"bert_hub": tiny_encoder_dir})):
        changes = {"tf1_flow": workplace / "tf1" / name, "out": workplace / f"run of {name}"}
        succeeds("convert", *flags(workplace, **changes, **encoder))
    embeddings = [BertFlow.load(workplace / f"run of {name}").encode(SENTENCES) for name in ("whole", "flow.ckpt-7")]
    np.testing.assert_array_equal(*embeddings)


def test_the_run_predicts_through_the_originals_command_line(workplace, arrays, write_tf1_checkpoint):
    write_tf1_checkpoint(workplace / "tf1" / "model.ckpt-7", arrays)
    succeeds("convert", *flags(workplace))
    status, stderr = small_runs.main(
        *("--task_name=STS-B", f"--data_dir={small_runs.write_stsb(workplace / 'STS-B')}", "--do_predict=true"),
        *(f"--output_parent_dir={workplace}", "--exp_name=run", "--sentence_embedding_type=avg-last-2", "--flow=1"),
        *(f"--flow_model_config={workplace / 'small_flow.json'}", "--max_seq_length=8", "--num_examples=0"),
    )
    assert status == 0, stderr
    rows = [line.split("\t") for line in (workplace / "STS-B" / "test.tsv").read_text().splitlines()[1:]]
    model = BertFlow.load(workplace / "run")
    a, b = model.encode([row[7] for row in rows]), model.encode([row[8] for row in rows])
    predicted = np.loadtxt(workplace / "run" / "test_results.tsv")
    np.testing.assert_allclose(np.diag(model.similarity(a, b)), predicted, rtol=0, atol=1e-6)


def test_training_begins_with_the_checkpoints_flow_and_classifier(workplace, arrays, write_tf1_checkpoint):
    write_tf1_checkpoint(workplace / "tf1" / "model.ckpt-7", arrays)
    small_runs.write_mnli(workplace / "MNLI")
    run_dir = small_runs.run(
        task_name="MNLI",
        data_dir=str(workplace / "MNLI"),
        output_parent_dir=str(workplace),
        exp_name="nli",
        bert_config_file=str(workplace / "tf1" / "bert_config.json"),
        vocab_file=str(workplace / "tf1" / "vocab.txt"),
        init_checkpoint=str(workplace / "tf1" / "model.ckpt-7"),
        sentence_embedding_type="avg-last-2",
        flow=1,
        flow_loss=1,
        num_examples=0,
        flow_model_config=str(workplace / "small_flow.json"),
        max_seq_length=8,
        do_train=True,
        train_batch_size=8,
        num_train_epochs=1.0,
    )
    start = small_runs.checkpoint_variables(run_dir, "model.ckpt-0")
    weights = next(value for key, value in start.items() if key.startswith("output_weights/.ATTRIBUTES"))
    np.testing.assert_array_equal(weights, arrays["loss/output_weights"])
    bias = arrays["bert/flow/revnet_0/revnet_step_0/actnorm/actnorm_center/b"].ravel()
    assert any(np.array_equal(value.ravel(), bias) for key, value in start.items() if key.startswith("flow/"))


@pytest.mark.parametrize(
    ("change", "changes", "message"),
    [
        (lambda a: {k: v for k, v in a.items() if "flow" not in k}, {}, "holds no variable below bert/flow/"),
        (lambda a: {k: v for k, v in a.items() if "additive/nn/zeros/W" not in k}, {}, "additive/nn/zeros/W: missing"),
        (
            lambda a: a | {"loss/output_weights": np.zeros([3, 5], np.float32)},
            {},
            "loss/output_weights: found shape [3, 5]",
        ),
        (dict, {"flow_model_config": "config_l9"}, "--flow_model_config"),
        (dict, {"sentence_embedding_type": None}, "--sentence_embedding_type: missing"),
        (dict, {"low_dim": 5}, "--low_dim: found 5, expected a divisor"),
        (dict, {"bert_hub": "demo"}, "--bert_hub: found bert_config_file as well"),
        (dict, {"vocab_file": "nowhere.txt"}, "nowhere.txt"),
        (lambda a: {k: v for k, v in a.items() if "flow" in k}, {}, "--bert_hub: missing"),
    ],
)
def test_what_does_not_fit_is_one_line_and_leaves_nothing(
    workplace, arrays, write_tf1_checkpoint, change, changes, message
):
    write_tf1_checkpoint(workplace / "tf1" / "model.ckpt-7", change(arrays))
    assert message in refused("convert", *flags(workplace, **changes))
    assert not (workplace / "run").exists()


def test_nothing_but_a_run_is_overwritten(workplace, arrays, write_tf1_checkpoint):
    write_tf1_checkpoint(workplace / "tf1" / "model.ckpt-7", arrays)
    (workplace / "run").mkdir()
    (workplace / "run" / "thesis.txt").write_text("mine")
    assert "exists, expected a new folder, or --overwrite" in refused("convert", *flags(workplace))
    for config in (None, '{"model_type": "bert"}'):
        if config:
            (workplace / "run" / "config.json").write_text(config)
        assert "of a converted run, expected a converted run to replace" in refused(
            "convert", *flags(workplace), "--overwrite"
        )
    assert (workplace / "run" / "thesis.txt").read_text() == "mine"
    shutil.rmtree(workplace / "run")
    back = ("convert", "--run", workplace / "run", "--to_tf1", "--out")
    for _ in range(2):
        succeeds("convert", *flags(workplace), "--overwrite")
        succeeds(*back, workplace / "back", "--overwrite")
    assert "holds no converted_from.json of a TF1 checkpoint" in refused(*back, workplace / "tf1", "--overwrite")
    assert (workplace / "tf1" / "model.ckpt-7.index").exists()


@pytest.mark.differs("checkpoint of the original")
def test_a_checkpoint_of_the_original_in_a_runs_place_is_not_passed_over(workplace, arrays, write_tf1_checkpoint):
    (workplace / "run").mkdir()
    write_tf1_checkpoint(workplace / "run" / "model.ckpt-7", arrays)
    status, stderr = small_runs.main(
        *("--task_name=STS-B", f"--data_dir={small_runs.write_stsb(workplace / 'STS-B')}", "--do_predict=true"),
        *(f"--output_parent_dir={workplace}", "--exp_name=run", "--bert_hub=demo"),
    )
    assert status == 2
    assert "model.ckpt-7: found a checkpoint without the config.json of a run" in stderr
