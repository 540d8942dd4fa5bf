"""The options of a model: which go together, and what results say of the model."""

import json

import click
import pytest

from bert_flow_tf.commands.model_options import ModelOptions, model_options, run_record
from bert_flow_tf.errors import UserError
from glow.config import GlowConfig


@click.command("measure")
@model_options(or_instead="vectors")
@click.option("--vectors")
def measure(model, vectors):
    """Stands for a command that takes a model, or vectors instead."""
    return model


@click.command("words")
@model_options(pooling=False)
def words(model):
    """Stands for a command that embeds no sentences."""
    return model


def told(*arguments, command=measure):
    return command.main([str(argument) for argument in arguments], prog_name="bert-flow x", standalone_mode=False)


def line(*arguments, command=measure):
    with pytest.raises(UserError) as error:
        told(*arguments, command=command)
    return str(error.value)


def test_what_was_told_arrives_as_one():
    flags = ("--bert_hub", "demo", "--sentence_embedding_type", "cls", "--max_seq_length", 32)
    assert told(*flags) == ModelOptions(None, "demo", None, "cls", 32)
    assert told("--bert_hub", "a", "--preprocess_hub", "b", command=words) == ModelOptions(
        None, "a", "b", embeds_sentences=False
    )
    assert told("--vectors", "v").bert_hub is None


def test_exactly_one_model_is_wanted(tmp_path):
    assert line() == "bert-flow x: found no model, expected one of --model, --bert_hub, --vectors"
    assert line(command=words) == "bert-flow x: found no model, expected one of --model, --bert_hub"
    assert "found --model and --bert_hub, expected one of" in line("--model", tmp_path, "--bert_hub", "demo")
    assert "found --bert_hub and --vectors, expected one of" in line("--vectors", "v", "--bert_hub", "demo")


def test_options_of_an_encoder_come_with_it_alone(tmp_path):
    belongs = "expected --bert_hub, which it belongs to"
    assert line("--model", tmp_path, "--max_seq_length", 32) == f"--max_seq_length: found --model, {belongs}"
    assert line("--vectors", "v", "--preprocess_hub", "p") == f"--preprocess_hub: found --vectors, {belongs}"
    assert line("--model", tmp_path, "--sentence_embedding_type", "cls").startswith("--sentence_embedding_type: ")


def test_a_run_is_a_folder_or_a_checkpoints_prefix(tmp_path):
    (tmp_path / "model.ckpt-3.index").touch()
    assert told("--model", tmp_path).run_dir == tmp_path
    assert told("--model", tmp_path / "model.ckpt-3").run_dir == tmp_path
    assert told("--bert_hub", tmp_path).run_dir is None
    message = f"--model={tmp_path / 'none'}: neither a folder nor a checkpoint's prefix, expected a finished run"
    assert line("--model", tmp_path / "none") == message


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (GlowConfig.from_name("config_l2_d3_w16").to_dict(), "config_l2_d3_w16"),
        (GlowConfig(n_levels=1, depth=7).to_dict(), None),
        (None, None),
    ],
)
def test_a_run_is_told_by_what_it_learned_and_how(tmp_path, config, name):
    flags = {"seed": 5, "flow_ddi": True, "use_full_for_training": 1, "num_examples": 0, "flow_learning_rate": 1e-3}
    written = {"format_version": 1, "encoder": {}, "data": None, "flags": flags | {"l2_penalty": -1.0}}
    written |= {"encoder_trained": False, "task_name": "sts-b", "flow": config is not None, "flow_config": config}
    written["data"] = {"num_examples": 40}
    (tmp_path / "config.json").write_text(json.dumps(written))
    assert run_record(tmp_path / "model.ckpt-9") == {
        "checkpoint": str(tmp_path / "model.ckpt-9"),
        "task_name": "sts-b",
        "encoder_trained": False,
        "flow_begun": False,
        "learned_pairs": 40,
        "flow_model_config": name,
        **flags,
        "l2_penalty": -1.0,
        # not in this config.json, as in that of a converted run
        "num_train_epochs": None,
        "train_batch_size": None,
        "flow_loss": None,
        "dupe_factor": None,
    }
