"""What every sub-command of `bert-flow` keeps to: its help, its refusals, and results that are not lost.

The refusals come before TensorFlow loads: one process makes them all, and says after each whether it has.
"""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from bert_flow_tf.cli import main
from tests.refusals import bert_flow, files_below, refusal, refused, succeeds

MISSING = "missing.tsv"
DEMO = ("--bert_hub", "demo")


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line that is complete but for what it reads and writes.

    Attributes:
      name: of the sub-command.
      arguments: beside those below.
      reads: option whose file or folder does not exist.
      writes: path of the result below the current folder; None without one, or where an earlier one is continued.
      out: value of `--out`; None for `writes`.
    """

    name: str
    arguments: tuple[str, ...]
    reads: str
    writes: str | None
    out: str | None = None

    def line(self, source: str, *more: str) -> list[str]:
        """Arguments of the whole command line."""
        out = self.out or self.writes
        return [*self.name.split(), *self.arguments, self.reads, source, *(["--out", out] if out else []), *more]


COMMANDS = {
    command.name: command
    for command in (
        Command("analyze lexical", DEMO, "--glue_dir", "folder"),
        Command("analyze words", (), "--model", "folder"),
        Command("analyze isotropy", DEMO, "--glue_dir", "folder"),
        Command("calibrate", DEMO, "--glue_dir", "file.json"),
        Command("convert", (), "--tf1_checkpoint", "folder"),
        Command("encode", DEMO, "--input", "file.npy"),
        Command("evaluate", (*DEMO, "--tasks", "stsb"), "--glue_dir", "file.json"),
        Command("export", ("--version", "1"), "--model", "folder/1", out="folder"),
        Command("fit", DEMO, "--input", "folder"),
        Command("prepare", ("--data", "sts12"), "--senteval_dir", "folder/STS-12", out="folder"),
        Command("pretrain", (*DEMO, "--steps", "200"), "--text", "folder"),
        Command("project", DEMO, "--input", "folder"),
        Command("report", (), "--runs", "folder"),
        Command("reproduce", DEMO, "--glue_dir", None, out="folder"),
        Command("similarity", DEMO, "--pairs", None),
        Command("verify", (), "--runs", "file.json"),
    )
}
KEPT = [name for name, command in COMMANDS.items() if command.writes]
FOREIGN = [name for name in KEPT if "." not in COMMANDS[name].writes]
# A saved model's folder is known by the module that loads it.
LOADS_TENSORFLOW = {("fit", "foreign")}

_RUN_ALL = """
import json, os, sys
from click.testing import CliRunner
from bert_flow_tf.cli import main
for folder, arguments in json.load(sys.stdin):
    os.chdir(folder)
    outcome = CliRunner().invoke(main, arguments)
    loaded = "tensorflow" in sys.modules
    print(json.dumps([outcome.exit_code, outcome.stdout, outcome.stderr, loaded]), flush=True)
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command line ended with, in a folder that held the files `before`."""

    folder: pathlib.Path
    before: dict[pathlib.Path, bytes | None]
    status: int
    stdout: str
    stderr: str
    loaded_tensorflow: bool

    def refusal(self) -> str:
        """The one line on stderr; nothing may have been printed or written beside it."""
        assert self.stdout == ""
        assert files_below(self.folder) == self.before
        return refusal(self.status, self.stderr)


def _cases(command: Command, root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, list[str]]]:
    """Name, current folder and arguments of each case."""
    for case, arguments in (
        ("help", [*command.name.split(), "--help"]),
        ("flag", [*command.name.split(), "--no_such_flag"]),
        ("missing", command.line(MISSING)),
        ("kept", command.line(".")),
        ("foreign", command.line(".", "--overwrite")),
    ):
        folder = root / case
        result = folder / (command.writes or "folder")
        result.parent.mkdir(parents=True)
        if case in ("kept", "foreign"):
            if result.suffix:
                result.write_text("mine")
            else:
                result.mkdir()
                (result / "thesis.txt").write_text("mine")
        yield case, folder, arguments


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """(name of the command, case) -> `Outcome`."""
    planned = []
    for name, command in COMMANDS.items():
        for case, folder, arguments in _cases(command, tmp_path_factory.mktemp(name.replace(" ", "_"))):
            if case in ("help", "flag", "missing") or name in {"kept": KEPT, "foreign": FOREIGN}[case]:
                planned.append(((name, case), folder, files_below(folder), arguments))
    planned.sort(key=lambda plan: plan[0] in LOADS_TENSORFLOW)
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL],
        input=json.dumps([(str(folder), arguments) for _, folder, _, arguments in planned]),
        capture_output=True,
        text=True,
        check=True,
    )
    ended = map(json.loads, done.stdout.splitlines())
    return {key: Outcome(folder, before, *end) for (key, folder, before, _), end in zip(planned, ended, strict=True)}


def test_every_sub_command_is_here():
    names = []
    with click.Context(main) as context:
        for name in main.list_commands(context):
            command = main.get_command(context, name)
            names += [f"{name} {sub}" for sub in command.commands] if isinstance(command, click.Group) else [name]
    # What launch reads and writes is run_siamese's.
    assert sorted([*COMMANDS, "launch"]) == sorted(names)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_holds_an_example(outcomes, name):
    outcome = outcomes[name, "help"]
    assert outcome.status == 0
    assert re.search(rf"\n  bert-flow {name} -", outcome.stdout)
    # As click says a range without limits.
    assert "x<=None" not in outcome.stdout
    assert not outcome.loaded_tensorflow


def test_help_has_a_whole_line_for_every_command():
    said = succeeds("--help")
    for name in COMMANDS:
        assert re.search(rf"^  {name.split()[0]} +[A-Z][^.]+\.$", said, re.MULTILINE), name


def test_a_command_without_its_sub_command_prints_its_help():
    outcome = bert_flow("analyze")
    assert outcome.exit_code == 2
    assert outcome.stderr == succeeds("analyze", "--help")


@pytest.mark.parametrize("command", ["cli --help", "cli prepare --help", "run_siamese --help", "recipe --help"])
def test_a_full_disk_below_standard_output_is_one_line(command):
    module, *arguments = command.split()
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", f"bert_flow_tf.{module}", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    refusal(done.returncode, done.stderr, "standard output: found no space left")


def test_a_name_that_is_too_long_is_one_line(tmp_path):
    assert "found a name that is too long" in refused("export", "--model", "a" * 300, "--out", tmp_path / "new")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_flag_is_refused(outcomes, name):
    outcome = outcomes[name, "flag"]
    assert outcome.refusal() == f"bert-flow {name}: No such option '--no_such_flag'."
    assert not outcome.loaded_tensorflow


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_file_is_named_and_nothing_is_written(outcomes, name):
    outcome = outcomes[name, "missing"]
    assert MISSING in outcome.refusal()
    assert not outcome.loaded_tensorflow or (name, "missing") in LOADS_TENSORFLOW


@pytest.mark.parametrize("name", KEPT)
def test_what_exists_is_kept_without_overwrite(outcomes, name):
    outcome = outcomes[name, "kept"]
    line = outcome.refusal()
    assert COMMANDS[name].writes in line and "exists" in line and "--overwrite" in line
    assert not outcome.loaded_tensorflow


@pytest.mark.parametrize("name", FOREIGN)
def test_overwrite_replaces_no_folder_of_another_kind(outcomes, name):
    outcome = outcomes[name, "foreign"]
    assert COMMANDS[name].writes in outcome.refusal()
    assert not outcome.loaded_tensorflow or (name, "foreign") in LOADS_TENSORFLOW


@pytest.fixture(scope="module")
def inputs(tiny_encoder_dir, small_glue_dir, tmp_path_factory):
    """Arguments with which a command writes a result, by its name: those that take little time."""
    folder = tmp_path_factory.mktemp("inputs")
    sentences, results = folder / "sentences.txt", folder / "results.json"
    sentences.write_text("w1 w2\nw3\n" * 8)
    encoder = ["--bert_hub", tiny_encoder_dir, "--max_seq_length", 8]
    task = [*encoder, "--glue_dir", small_glue_dir]
    scored = ["--tasks", "stsb", *task]
    succeeds("evaluate", *scored, "--out", results)
    senteval = folder / "STS" / "STS13-en-test"
    senteval.mkdir(parents=True)
    for subset in ("FNWN", "headlines", "OnWN"):
        (senteval / f"STS.input.{subset}.txt").write_text("a\tb\n")
        (senteval / f"STS.gs.{subset}.txt").write_text("2.5\n")
    return {
        "analyze isotropy": task,
        "calibrate": [*task, "--methods", "none"],
        "encode": [*encoder, "--input", sentences],
        "evaluate": scored,
        "prepare": ["--data", "sts13", "--senteval_dir", folder],
        "project": [*encoder, "--input", sentences],
        "report": ["--runs", results],
    }


@pytest.mark.parametrize(
    "name", ["analyze isotropy", "calibrate", "encode", "evaluate", "prepare", "project", "report"]
)
def test_a_result_is_kept_without_overwrite_and_replaced_with_it(inputs, name, tmp_path):
    out = tmp_path / (COMMANDS[name].out or COMMANDS[name].writes)
    result = tmp_path / COMMANDS[name].writes
    if name == "prepare":
        result = out / "STS-13"
    command = [*name.split(), *inputs[name], "--out", out]
    succeeds(*command)
    first, made = files_below(tmp_path), result.stat().st_mtime_ns
    assert "exists" in refused(*command, unchanged=tmp_path)
    succeeds(*command, "--overwrite")
    assert files_below(tmp_path).keys() == first.keys()
    assert result.stat().st_mtime_ns > made
