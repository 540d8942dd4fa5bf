"""The options that commands share: what they give to the command's function."""

import dataclasses
import importlib.machinery
import sys
import types

import click
import pytest

from bert_flow_tf.commands import lists, task_options
from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.model_options import ModelOptions, load_sentence_transformer
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.tasks.tasks import TASKS, get_task
from tests.refusals import user_error


def given(*arguments, decorators=(), **rules):
    """Return the options that a command with these decorators gets."""

    def function(**values):
        return values

    for decorator in decorators:
        function = decorator(function)
    made = command("x", **rules)(function)
    return made.main([*map(str, arguments)], standalone_mode=False)


def test_options_of_a_model_arrive_as_one_argument(tmp_path):
    def of_model(*arguments):
        decorators = [setting_options(ModelOptions, name="model")]
        return given(*arguments, decorators=decorators)["model"]

    flags = ("--bert_hub", "demo", "--pooling", "cls", "--max_seq_length", 32)
    assert of_model(*flags) == ModelOptions(bert_hub="demo", pooling="cls", max_seq_length=32)
    assert of_model() == ModelOptions()
    with user_error("max_seq_length: found 2, expected"):
        of_model("--bert_hub", "demo", "--max_seq_length", 2)
    # A run is a folder or the prefix of a checkpoint.
    (tmp_path / "model.ckpt-3.index").touch()
    (tmp_path / "config.json").write_text('{"encoder_trained": false}')
    assert (
        of_model("--model", tmp_path).run_dir
        == of_model("--model", tmp_path / "model.ckpt-3").run_dir
        == tmp_path
    )
    assert of_model("--bert_hub", tmp_path).run_dir is None


def test_a_model_that_sentence_transformers_does_not_find_is_named(monkeypatch):
    library = types.ModuleType("sentence_transformers")
    library.__spec__ = importlib.machinery.ModuleSpec("sentence_transformers", None)

    def find(name):
        # The Hub's errors are of this kind, without a number.
        raise OSError(f"{name} is not a local folder\nand no model of the Hub")

    library.SentenceTransformer = find
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    with user_error("--sentence_transformer=no/such: cannot be read as ", "no model of the Hub"):
        load_sentence_transformer("no/such")


def test_what_belongs_together_is_declared_once():
    @dataclasses.dataclass(frozen=True)
    class Numbers(Settings):
        b: int = flag(1, "A number.", option="bee", needs=("a", "c"), ge=1)

    decorators = [
        setting_options(Numbers, name="numbers"),
        option("--a"),
        option("--d/--no_d", default=None),
    ]
    rules = {"one_of": [("a", "d")], "excludes": {"d": ("bee",)}}

    def of(*arguments):
        return given(*arguments, decorators=decorators, **rules)

    assert of("--a", "x") == {"a": "x", "d": None, "numbers": Numbers()}
    assert of("--a", "x", "--bee", 3)["numbers"].b == 3
    assert of("--no_d")["d"] is False
    for arguments, error, line in (
        ((), click.UsageError, "found none, expected one of --a, --d"),
        (("--a", "", "--bee", 1), click.UsageError, "found none"),
        (("--a", "x", "--no_d"), click.UsageError, "found --a and --d, expected one"),
        # The command has no --c.
        (("--d", "--bee", 2), ArgumentError, "bee: missing --a, which it needs"),
        (("--a", "x", "--bee", 0), ArgumentError, "bee: found 0, expected"),
    ):
        with pytest.raises(error) as found:
            of(*arguments)
        assert line in str(getattr(found.value, "message", found.value))
    rules = {"excludes": {"d": ("bee",)}}
    with user_error("bee: found it beside --d, where it has no effect"):
        of("--a", "x", "--d", "--bee", 2)


def test_seeds_are_1_to_a_number_or_a_list():
    def seeds(text):
        decorators = [option("--seeds", callback=lists.seed_list)]
        return given(f"--seeds={text}", decorators=decorators)["seeds"]

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
    names = [option("--names", callback=lists.name_list())]
    assert given("--names", " b,a, ,b", decorators=names)["names"] == ["b", "a"]
    of_tasks = [task_options.task_option("A task.")]
    for name, task in TASKS.items():
        for text in (
            name,
            name.upper(),
            task.directory,
            name.replace("-", "").removesuffix("regression"),
        ):
            assert get_task(text) is task
            assert given("--task", text, decorators=of_tasks)["task"] is task
    known = task_options.task_list(("stsb", "mrpc"))
    of_tasks.append(option("--tasks", callback=known))
    tasks = given("--tasks=MRPC-regression,STS-B,stsb", decorators=of_tasks)
    assert tasks["tasks"] == ["mrpc", "stsb"]
    for names in (["--task", "STSC"], ["--tasks", "stsb,STSC"]):
        with user_error("unknown task 'STSC', expected one of "):
            given(*names, decorators=of_tasks)
