"""The options that commands share: what they give to the command's function."""

from typing import Any

import click
import pytest

from bert_flow_tf.commands.options import (
    ModelOptions,
    model_options,
    name_list,
    seed_list,
    sentence_options,
    task_option,
)
from bert_flow_tf.data.tasks import TASKS, get_task


@click.command("measure")
@model_options("model", "bert_hub", "vectors")
@click.option("--vectors")
def measure(model, vectors):
    """Stands for a command that takes a model, or vectors instead."""
    return model


@click.command("read")
@sentence_options()
def read(sentences):
    """Stands for a command that reads sentences."""
    return list(sentences)


@click.command("values")
@click.option("--seeds", callback=seed_list, default="3")
@click.option("--names", callback=name_list())
@task_option("A task.")
def values(**values):
    """Stands for a command with the other options."""
    return values


def given(command: click.Command, *arguments: object) -> Any:
    """What the command's function returns."""
    return command.main([str(argument) for argument in arguments], prog_name="bert-flow x", standalone_mode=False)


def test_options_of_a_model_arrive_as_one_argument():
    flags = ("--bert_hub", "demo", "--sentence_embedding_type", "cls", "--max_seq_length", 32)
    assert given(measure, *flags) == ModelOptions(None, "demo", None, "cls", 32)
    assert given(measure, "--vectors", "v") == ModelOptions()


def test_run_is_a_folder_or_a_checkpoints_prefix(tmp_path):
    (tmp_path / "model.ckpt-3.index").touch()
    (tmp_path / "config.json").write_text('{"encoder_trained": false}')
    for arguments, run in (
        (["--model", tmp_path], tmp_path),
        (["--model", tmp_path / "model.ckpt-3"], tmp_path),
        (["--bert_hub", tmp_path], None),
    ):
        assert given(measure, *arguments).run_dir == run
    # A model of the Hugging Face Hub is not where the command is run.
    assert ModelOptions(model="bert-mine").run_dir is None


def test_sentences_are_read_from_the_named_column(tmp_path):
    path = tmp_path / "pairs.data"
    path.write_text("a\tb\n1\tx y\n2\tz\n")
    assert given(read, "--input", path, "--input_format", "tsv", "--column", "b") == ["x y", "z"]


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1", [1]), ("3", [1, 2, 3]), ("7,8", [7, 8]), ("7,", [7]), ("0,", [0]), (" 9 , 2 ", [9, 2]), ("1000,", [1000])],
)
def test_seeds_are_1_to_a_number_or_a_list(text, seeds):
    assert given(values, "--seeds", text)["seeds"] == seeds


@pytest.mark.parametrize("text", ["0", "1,2,1", "9" * 5000, ",", "-1", "²", "20201116", "1,4294967296"])
def test_other_seeds_are_a_mistake(text):
    with pytest.raises(click.BadParameter):
        given(values, f"--seeds={text}")


def test_names_are_separated_by_commas_and_taken_once():
    assert given(values, "--names", " b,a, ,b")["names"] == ["b", "a"]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_several_names(name):
    for text in (name, name.upper(), TASKS[name].directory, name.replace("-", "").removesuffix("regression")):
        assert given(values, "--task", text)["task"] is get_task(name)
