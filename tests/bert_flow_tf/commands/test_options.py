"""The options that commands share: what they give to the command, and which go together."""

from typing import Any

import click
import pytest

from bert_flow_tf.commands.options import (
    ModelOptions,
    flow_config_name,
    input_options,
    model_options,
    name_list,
    require_gold,
    seed_list,
    task_name,
)
from bert_flow_tf.data.tasks import TASKS, get_task
from tests.refusals import user_error


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


@click.command("read")
@input_options
def read(source):
    """Stands for a command that reads sentences."""
    return list(source.read())


@click.command("values")
@click.option("--seeds", callback=seed_list)
@click.option("--names", callback=name_list())
@click.option("--task", callback=task_name)
@click.option("--flow", callback=flow_config_name)
def values(**values):
    """Stands for a command with the other options."""
    return values


def given(command: click.Command, *arguments: object) -> Any:
    """What the command's function returns."""
    return command.main([str(argument) for argument in arguments], prog_name="bert-flow x", standalone_mode=False)


def test_the_options_of_a_model_arrive_as_one_argument():
    flags = ("--bert_hub", "demo", "--sentence_embedding_type", "cls", "--max_seq_length", 32)
    assert given(measure, *flags) == ModelOptions(None, "demo", None, "cls", 32)
    expected = ModelOptions(None, "base", "https://b", embeds_sentences=False)
    assert given(words, "--bert_hub", "base", "--preprocess_hub", "https://b") == expected
    assert given(measure, "--vectors", "v") == ModelOptions()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "bert-flow x: found no model, expected one of --model, --bert_hub, --vectors"),
        (["--model", ".", "--bert_hub", "demo"], "found --model and --bert_hub, expected one of --model, --bert_hub"),
        (["--vectors", "v", "--bert_hub", "demo"], "found --bert_hub and --vectors, expected one of"),
        (["--model", ".", "--max_seq_length=32"], "--max_seq_length: found --model, expected --bert_hub, the only one"),
        (["--model", ".", "--preprocess_hub=p"], "--preprocess_hub: found --model, expected --bert_hub"),
        (["--vectors", "v", "--sentence_embedding_type=cls"], "--sentence_embedding_type: found --vectors, expected"),
        (["--model", "none"], "--model=none: neither a folder nor a checkpoint's prefix"),
    ],
)
def test_exactly_one_model_is_required_with_its_own_options(arguments, message):
    with user_error(message):
        given(measure, *arguments)


def test_a_run_is_a_folder_or_a_checkpoints_prefix(tmp_path):
    (tmp_path / "model.ckpt-3.index").touch()
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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", "0, expected at least one"),
        ("1,2,1", "'1,2,1', expected different seeds"),
        ("9" * 5000, "'9999"),
        (",", "',', expected a number"),
        ("-1", "'-1', expected a number"),
        ("²", "'²', expected a number"),
        # A seed of which the comma was forgotten.
        ("20201116", "20201116, expected at most 1000 (write '20201116,' for that one seed)"),
        ("1,4294967296", "4294967296, expected seeds up to 999999999"),
    ],
)
def test_other_seeds_are_refused(text, found):
    with user_error(f"--seeds: found {found}"):
        given(values, f"--seeds={text}")


def test_names_are_separated_by_commas_and_taken_once():
    assert given(values, "--names", " b,a, ,b")["names"] == ["b", "a"]
    with user_error("--names: found none"):
        given(values, "--names", " , ")


def test_a_flow_configuration_is_a_shipped_name_or_a_file(tmp_path):
    assert given(values, "--flow", "config_l2_d3_w32")["flow"] == "config_l2_d3_w32"
    with user_error("flow_model_config: unknown flow config 'l9'"):
        given(values, "--flow", "l9")
    with user_error("flow_model_config: ", "none.json"):
        given(values, "--flow", tmp_path / "none.json")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_several_names(name):
    for text in (name, name.upper(), TASKS[name].directory, name.replace("-", "").removesuffix("regression")):
        assert given(values, "--task", text)["task"] is get_task(name)


def test_an_unknown_task_is_refused_with_the_known_ones():
    with user_error("--task: unknown task 'sts-17', expected one of sts-b, sick-r, "):
        given(values, "--task", "sts-17")


@pytest.mark.parametrize(
    ("name", "splits", "message"),
    [
        ("mnli", ["dev"], "mnli has no gold scores for its dev split, expected one of sts-b, sick-r, qqp"),
        ("sts-12", ["test"], "sts-12 has no gold scores for its test split, expected one of sts-b, sick-r, mrpc"),
        ("qqp", ["dev", "test"], "qqp has no gold scores for its test split, expected one of sts-b, sick-r, mrpc"),
    ],
)
def test_a_task_without_gold_scores_is_refused_with_those_that_have_them(name, splits, message):
    with user_error(f"--task: {message}"):
        require_gold(get_task(name), splits)
    require_gold(get_task("sts-b"), splits)
