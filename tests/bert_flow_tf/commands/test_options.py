"""The options that commands share: what they give to the command's function."""

import click
import pytest

from bert_flow_tf.commands import options
from bert_flow_tf.commands.options import ModelOptions
from bert_flow_tf.tasks.tasks import TASKS, get_task
from tests.refusals import user_error


def given(decorators, *arguments):
    """Return the options that a command with these decorators gets."""
    command = click.command("x")(options.with_options(decorators)(lambda **values: values))
    return command.main([*map(str, arguments)], standalone_mode=False)


def test_options_of_a_model_arrive_as_one_argument(tmp_path):
    def of_model(*arguments):
        decorators = [
            options.model_options("model", "bert_hub", "vectors"),
            click.option("--vectors"),
        ]
        return given(decorators, *arguments)["model"]

    flags = ("--bert_hub", "demo", "--pooling", "cls", "--max_seq_length", 32)
    assert of_model(*flags) == ModelOptions(None, "demo", None, "cls", 32)
    assert of_model("--vectors", "v") == ModelOptions()
    # A run is a folder or the prefix of a checkpoint.
    (tmp_path / "model.ckpt-3.index").touch()
    (tmp_path / "config.json").write_text('{"encoder_trained": false}')
    assert (
        of_model("--model", tmp_path).run_dir
        == of_model("--model", tmp_path / "model.ckpt-3").run_dir
        == tmp_path
    )
    # A model of the Hugging Face Hub is not where the command is run.
    assert (
        of_model("--bert_hub", tmp_path).run_dir is ModelOptions(model="bert-mine").run_dir is None
    )


def test_seeds_are_1_to_a_number_or_a_list():
    def seeds(text):
        return given([click.option("--seeds", callback=options.seed_list)], f"--seeds={text}")[
            "seeds"
        ]

    for text, found in {
        "1": [1],
        "3": [1, 2, 3],
        "7,8": [7, 8],
        "0,": [0],
        " 9 , 2 ": [9, 2],
        "1000,": [1000],
    }.items():
        assert seeds(text) == found
    for text in ("0", "1,2,1", "9" * 5000, ",", "-1", "²", "20201116", "1,4294967296"):
        with pytest.raises(click.BadParameter):
            seeds(text)


def test_names_are_taken_once_and_a_task_has_several():
    assert given([click.option("--names", callback=options.name_list())], "--names", " b,a, ,b")[
        "names"
    ] == ["b", "a"]
    for name, task in TASKS.items():
        for text in (
            name,
            name.upper(),
            task.directory,
            name.replace("-", "").removesuffix("regression"),
        ):
            assert get_task(text) is task
            assert given([options.task_option("A task.")], "--task", text)["task"] is task
    known = options.task_list(("stsb", "mrpc"))
    tasks = given([click.option("--tasks", callback=known)], "--tasks=MRPC-regression,STS-B,stsb")
    assert tasks["tasks"] == ["mrpc", "stsb"]
    for names in (["--task", "STSC"], ["--tasks", "stsb,STSC"]):
        options_of_tasks = [options.task_option("A task."), click.option("--tasks", callback=known)]
        with user_error("unknown task 'STSC', expected one of "):
            given(options_of_tasks, *names)
