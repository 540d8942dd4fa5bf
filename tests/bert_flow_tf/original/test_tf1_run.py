"""Checkpoints of the original's training become bert_flow_tf runs, and the reverse."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.original.build import build_model, load_init_checkpoint
from bert_flow_tf.training.run_records import read_config
from glow.config import GlowConfig
from glow.flow import Glow
from glow.tf1_checkpoint import tf1_variables
from tests.bert_flow_tf import small_runs
from tests.refusals import refused, succeeds, user_error

SENTENCES = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]


@pytest.fixture(scope="module")
def arrays(golden_dir, tmp_path_factory):
    """Variables of a checkpoint of the original, without the optimisers' moments."""
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


def begin_folder(golden_dir, folder):
    """Make a folder with the configuration and vocabulary of BERT."""
    folder.mkdir()
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(golden_dir / "bert_tiny" / name, folder)
    # Hugging Face's file is no run's.
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


@pytest.fixture(scope="module")
def workplace(golden_dir, tmp_path_factory, arrays, write_tf1_checkpoint):
    """A folder with a checkpoint in `tf1`, and its `run`."""
    folder = tmp_path_factory.mktemp("workplace")
    small_runs.small_flow_file(folder)
    weights = [name for name, value in arrays.items() if value.ndim and "invertible" not in name]
    moments = {
        f"{name}/adam_{kind}": np.zeros_like(arrays[name]) for name in weights for kind in "mv"
    }
    write_tf1_checkpoint(
        begin_folder(golden_dir, folder / "tf1") / "model.ckpt-7", arrays | moments
    )
    assert succeeds("convert", *flags(folder)) == f"written: {folder / 'run'}\n"
    return folder


def flags(folder, **changes):
    values = {
        "tf1_flow": folder / "tf1",
        "out": folder / "run",
        "sentence_embedding_type": "avg-last-2",
        "flow_model_config": folder / "small_flow.json",
        "max_seq_length": 8,
    }
    return [f"--{name}={value}" for name, value in (values | changes).items()]


def test_conversion_to_tf1_and_back_keeps_all_bits(workplace, arrays, tmp_path):
    tf1 = tmp_path / "back"
    succeeds("convert", "--run", workplace / "run", "--to_tf1", "--out", tf1)
    assert tf.train.latest_checkpoint(str(tf1)) == str(tf1 / "model.ckpt-7")
    back = tf.train.load_checkpoint(str(tf1 / "model.ckpt-7"))
    assert set(back.get_variable_to_shape_map()) == set(arrays)
    for name, value in arrays.items():
        found = back.get_tensor(name)
        assert np.asarray(found).dtype == value.dtype, name
        np.testing.assert_array_equal(found, value, err_msg=name)
    # What was written is what the original, and this command, begin with.
    assert (tf1 / "vocab.txt").read_bytes() == (workplace / "tf1" / "vocab.txt").read_bytes()
    assert json.loads((tf1 / "bert_config.json").read_text())["hidden_act"] == "gelu"
    succeeds("convert", *flags(workplace, tf1_flow=tf1, out=tmp_path / "run"))
    assert not any(
        key.startswith("encoder") for key in small_runs.checkpoint_variables(tmp_path / "run")
    )
    embeddings = [
        BertFlow.load(folder / "run").encode(SENTENCES) for folder in (workplace, tmp_path)
    ]
    np.testing.assert_array_equal(*embeddings)


@pytest.mark.parametrize(
    ("pattern", "changes", "found"),
    [
        ("(?!.*flow)", {}, "no variable below bert/flow/"),
        ("(?!.*additive/nn/zeros/W)", {}, "additive/nn/zeros/W and 1 more: missing"),
        (".*flow", {}, "--bert_hub: missing"),
        (".*", {"low_dim": 5}, "--low_dim: found 5"),
    ],
)
def test_what_does_not_fit_is_named_and_leaves_nothing(
    workplace, golden_dir, arrays, write_tf1_checkpoint, tmp_path, pattern, changes, found
):
    tf1 = begin_folder(golden_dir, tmp_path / "tf1")
    held = {name: value for name, value in arrays.items() if re.match(pattern, name)}
    write_tf1_checkpoint(tf1 / "model.ckpt-7", held)
    assert found in refused(
        "convert", *flags(workplace, tf1_flow=tf1, out=tmp_path / "run", **changes)
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.differs("checkpoint of the original")
def test_the_original_command_line_predicts_with_the_run_alone(
    workplace, arrays, write_tf1_checkpoint, tmp_path
):
    data = small_runs.write_stsb(workplace / "STS-B")
    line = (
        *(
            "--task_name=STS-B",
            f"--data_dir={data}",
            "--do_predict=true",
            f"--output_parent_dir={tmp_path}",
        ),
        *(
            "--sentence_embedding_type=avg-last-2",
            "--flow=1",
            "--max_seq_length=8",
            "--num_examples=0",
        ),
        f"--flow_model_config={workplace / 'small_flow.json'}",
    )
    run_dir = shutil.copytree(workplace / "run", tmp_path / "run")
    status, stderr = small_runs.main(*line, "--exp_name=run")
    assert status == 0, stderr
    rows = [row.split("\t") for row in (data / "test.tsv").read_text().splitlines()[1:]]
    model = BertFlow.load(run_dir)
    a, b = model.encode([row[7] for row in rows]), model.encode([row[8] for row in rows])
    predicted = np.loadtxt(run_dir / "test_results.tsv")
    np.testing.assert_allclose(np.diag(model.similarity(a, b)), predicted, rtol=0, atol=1e-6)
    (tmp_path / "tf1").mkdir()
    write_tf1_checkpoint(tmp_path / "tf1" / "model.ckpt-7", arrays)
    status, stderr = small_runs.main(*line, "--exp_name=tf1", "--bert_hub=demo")
    assert (
        status == 2
        and "model.ckpt-7: found a checkpoint without the config.json of a run" in stderr
    )


def test_training_begins_with_the_checkpoints_weights(workplace, arrays, tiny_source):
    model = build_model(
        tiny_source, read_config(workplace / "run").model, num_labels=3, trainable=True
    )
    assert load_init_checkpoint(model, workplace / "tf1") == ["flow", "output_weights"]
    np.testing.assert_array_equal(model.output_weights, arrays["loss/output_weights"])
    for name, value in tf1_variables(model.flow).items():
        np.testing.assert_array_equal(value, arrays[name], err_msg=name)
    five = build_model(tiny_source, read_config(workplace / "run").model, num_labels=5)
    with user_error("loss/output_weights: found shape [3, 96]"):
        load_init_checkpoint(five, workplace / "tf1")


def test_nothing_but_a_converted_run_is_overwritten(workplace, tmp_path):
    run_dir = tmp_path / "run"
    for config in (None, '{"model_type": "bert"}'):
        run_dir.mkdir(exist_ok=True)
        (run_dir / ("thesis.txt" if config is None else "config.json")).write_text(config or "mine")
        assert "run: " in refused(
            "convert", *flags(workplace, out=run_dir), "--overwrite", unchanged=run_dir
        )
    shutil.rmtree(run_dir)
    back = ("convert", "--run", run_dir, "--to_tf1", "--overwrite", "--out")
    for _ in range(2):
        succeeds("convert", *flags(workplace, out=run_dir), "--overwrite")
        succeeds(*back, tmp_path / "back")
    assert "converted_from.json" in refused(*back, workplace / "tf1", unchanged=workplace / "tf1")
