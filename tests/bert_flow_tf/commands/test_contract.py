"""Rules of every sub-command: help, one line for a mistake, kept results.

A mistake in a name or an option is one line before TensorFlow and scikit-learn load.
"""

import dataclasses
import json
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from bert_flow_tf.cli import main
from bert_flow_tf.sample_data import sample_glue_dir
from tests.refusals import files_below, refusal, refused, succeeds

# Option -> a file or folder that is there.
THERE = {"--input": "s.txt", "--model": "model", "--tf1_checkpoint": "ckpt", "--text": "s.txt"}
# Each command has a line up to its input, and the path of its result: None without one, or to
# continue an earlier one.
COMMANDS = {
    "analyses": ("--bert_hub demo --tables 6 --out file.json --glue_dir", "file.json"),
    "isotropy": ("--bert_hub demo --out file.json --glue_dir", "file.json"),
    "compare": ("--bert_hub demo --out file.json --glue_dir", "file.json"),
    "duplicates": ("--bert_hub demo --out groups.csv --input", "groups.csv"),
    "check-served": ("http://127.0.0.1:9/embed --export", None),
    "convert": ("--out folder --tf1_checkpoint", "folder"),
    "encode": ("--bert_hub demo --out file.npy --input", "file.npy"),
    "encode-folder": ("--bert_hub demo --out folder --input", None),
    "evaluate": ("--bert_hub demo --tasks stsb --out file.json --glue_dir", "file.json"),
    "export": ("--version 1 --out folder --model", "folder/1"),
    "fit": ("--bert_hub demo --out folder --input", "folder"),
    "pretrain": ("--bert_hub demo --steps 200 --out folder --text", "folder"),
    "report": ("--runs", None),
    "reproduce": ("--bert_hub demo --out folder --glue_dir", None),
    "search": ("--bert_hub demo query --input", None),
    "similarity": ("--bert_hub demo --pairs", None),
    "threshold": ("--bert_hub demo --input", None),
    "verify": ("--out file.json --runs", "file.json"),
}
KEPT = {name: result for name, (_, result) in COMMANDS.items() if result}
# A saved model's folder is known by a module that loads TensorFlow; test_sentence_commands.py
# overwrites one.
FOREIGN = [name for name, result in KEPT.items() if "." not in result and name != "fit"]

FIT, COMPARE = "fit --bert_hub demo --out o", "compare --bert_hub demo --glue_dir {glue}"
ENCODE, SIMILARITY = "encode --bert_hub demo --input", "similarity --bert_hub demo"
CONVERT = "convert --out o"
EVALUATE = "evaluate --bert_hub demo --glue_dir {glue} --tasks"
RUN_SIAMESE = (
    "run_siamese --task_name=STS-B --data_dir={glue}/STS-B --output_parent_dir=o --exp_name=x "
    "--do_train=true "
    "--bert_hub=demo"
)
# Command line in a folder with s.txt, s.tsv, … -> what the line says.
MISTAKES = {
    "encde": "did you mean encode?",
    "fit --bert_hbu demo": "bert-flow fit: No such option '--bert_hbu'",
    "similarity --model . --bert_hub demo a b": "found --model and --bert_hub, expected one of "
    "--model, --bert_hub",
    "similarity --model . --max_seq_length 32 a b": "--max_seq_length: missing --bert_hub",
    "similarity --model my_modl a b": "did you mean my_model?",
    "fit --bert_hub demo --input s.txt --out new --num_train_epochs nan": "--num_train_epochs: "
    "found nan",
    "fit --bert_hub demo --input s.txt --out new --pairs=": "found the ending ''",
    "compare --glue_dir {glue}": "found none, expected one of --model, --bert_hub",
    "compare --bert_hub demo": "found none, expected one of --input, --glue_dir",
    f"{COMPARE} --methods whitenin": "did you mean whitening?",
    f"{COMPARE} --task sts-12": "sts-12",
    f"{COMPARE} --out /proc/none/results.json": "--out=/proc/none/results.json",
    f"{ENCODE} s.tsv --column sentense --out o.npy": "did you mean sentence?",
    f"{ENCODE} s.txt --out o.csv": "o.csv: found the ending '.csv'",
    f"{ENCODE} s.doc --out o.npy": "'.doc'",
    f"{ENCODE} s.txt --out o\udcff.npy": r"o\udcff.npy: found a name that is not UTF-8",
    f"{ENCODE} s.txt --out o.npy --preprocess_hub nowhere": "--preprocess_hub=nowhere: ",
    f"{SIMILARITY} --pairs s.tsv": "sentence1",
    f"{SIMILARITY} --pairs p.tsv --columns 1": "--columns: expected two names",
    f"{SIMILARITY} one": "found 1 sentences, expected 2, or --pairs",
    f"{EVALUATE} stsbb": "did you mean stsb?",
    f"{EVALUATE} ,": "found none",
    FIT: "found none, expected one of --input, --embeddings",
    f"{FIT} --embeddings e --column text": "--column: missing --input, which it needs",
    "fit --out o --sentence_transformer m --embeddings e": "--sentence_transformer: found it "
    "beside --embeddings, where it has no effect",
    f"{FIT} --input s.txt --sentence_embedding_type paper-cl": "did you mean paper-cls?",
    f"{FIT} --input s.txt --flow_model_config config_l9": "did you mean config_l3_d3_w32?",
    f"{FIT} --input s.txt --train_batch_size 65": "--input: found 64 sentences, expected at least "
    "the --train_batch_size of 65",
    f"{FIT} --input nothing.txt": "--input=nothing.txt: found no sentences",
    "isotropy --bert_hub demo --input nothing.txt": "--input=nothing.txt: found no sentences",
    "evaluate --bert_hub demo --pairs nothing.tsv": "nothing.tsv: found no row",
    "similarity --model s.txt a b": "--model=s.txt: found a file",
    f"{FIT} --input s.txt --num_train_epochs ten": "'ten' is not a valid float",
    "export --model folder --out o": "folder: found neither bert_flow.json nor",
    "reproduce --bert_hub demp --glue_dir {glue} --out o": "did you mean demo?",
    CONVERT: "found none, expected one of --tf1_checkpoint, --huggingface, --run, --tf1_flow",
    f"{CONVERT} --huggingface folder --to_tf1": "--to_tf1: missing --run",
    f"{CONVERT} --run a --low_dim 8": "--low_dim: missing --tf1_flow",
    f"{CONVERT} --tf1_flow a": "--pooling: missing",
    f"{CONVERT} --run .": "found no checkpoint",
    f"{CONVERT} --tf1_checkpoint folder": "folder: found no checkpoint",
    "pretrain --bert_hub demo --text s.txt --steps 200 --num_warmup_steps 200 --out o": "--steps: found "
    "200",
    "pretrain --bert_hub demo --text empty.txt --steps 200 --out o": "--text=empty.txt: found no "
    "text",
    f"{RUN_SIAMESE} --task_name=STS-BB": "--task_name: unknown task 'STS-BB'",
    f"{RUN_SIAMESE} --data_dir=nowhere": "nowhere: no such folder",
    f"{RUN_SIAMESE} --max_seq_length={2**31}": f"--max_seq_length: found {2**31}, ",
    f"{RUN_SIAMESE} --sentence_embedding_type=avgg": "did you mean avg?",
    f"{RUN_SIAMESE} --init_checkpoint=nowhere": "no such folder, and no nowhere.index",
    f"{RUN_SIAMESE} stray": "stray",
    "run_siamese --do_train=true": "--task_name",
}
# Neither library can be imported there.
_RUN_ALL = """
import contextlib, io, json, os, sys, traceback
sys.modules["tensorflow"] = sys.modules["sklearn"] = None
from absl import flags
from bert_flow_tf import cli, run_siamese
from bert_flow_tf.common.errors import exit_status

def run(arguments):
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    return run_siamese.main(run_siamese.parse(arguments, values), values)

for folder, command in json.load(sys.stdin):
    os.chdir(folder)
    status, out, err = None, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if command[0] == "run_siamese":
                status = exit_status(run, command)
            else:
                cli.main(command, prog_name="bert-flow")
        except SystemExit as end:
            status = end.code
        except Exception:
            traceback.print_exc()
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a command in a folder that held `before`."""

    folder: pathlib.Path
    before: dict[pathlib.Path, bytes | None]
    status: int
    stdout: str
    stderr: str

    def refusal(self, *parts: str) -> str:
        """Return the one line on stderr; nothing else may be written."""
        assert (self.stdout, files_below(self.folder)) == ("", self.before)
        return refusal(self.status, self.stderr, *parts)


def _cases(name: str, root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, list[str]]]:
    """Yield name, current folder and arguments of each case."""
    command = [*name.split(), *COMMANDS[name][0].split()]
    there = [*command, THERE.get(command[-1], ".")]
    cases = {"help": [*name.split(), "--help"], "missing": [*command, "missing.tsv"]}
    cases |= {"kept": there} if name in KEPT else {}
    cases |= {"foreign": [*there, "--overwrite"]} if name in FOREIGN else {}
    for case, arguments in cases.items():
        folder = root / case
        (folder / "model").mkdir(parents=True)
        for file in ("ckpt.index", "model/bert_flow.json"):
            (folder / file).touch()
        (folder / "s.txt").write_text("one\n")
        result = folder / KEPT.get(name, "folder")
        result.parent.mkdir(exist_ok=True)
        if case in ("kept", "foreign"):
            result = result if result.suffix else result / "thesis.txt"
            result.parent.mkdir(exist_ok=True)
            result.write_text("mine")
        yield case, folder, arguments


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """`Outcome` of each command's cases and of each mistake, in one process."""
    planned = []
    for name in COMMANDS:
        root = tmp_path_factory.mktemp(name.replace(" ", "_"))
        planned += [
            ((name, case), folder, arguments) for case, folder, arguments in _cases(name, root)
        ]
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "s.txt").write_text("w1 w2\n" * 64)
    (folder / "s.tsv").write_text("sentence\nw1 w2\n")
    (folder / "empty.txt").write_text("\n \n")
    for name in ("nothing.txt", "nothing.tsv"):
        (folder / name).touch()
    for name in ("my_model", "folder"):
        (folder / name).mkdir()
    planned += [
        (line, folder, shlex.split(line.format(glue=sample_glue_dir()))) for line in MISTAKES
    ]
    before = [files_below(folder) for _, folder, _ in planned]
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL],
        input=json.dumps([(str(folder), arguments) for _, folder, arguments in planned]),
        capture_output=True,
        text=True,
        check=True,
    )
    ends = map(json.loads, done.stdout.splitlines())
    made = zip(planned, before, ends, strict=True)
    return {key: Outcome(folder, files, *end) for (key, folder, _), files, end in made}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_before_anything_loads(outcomes, mistake):
    outcomes[mistake].refusal(MISTAKES[mistake])


def test_every_sub_command_is_here():
    names = []
    with click.Context(main) as context:
        for name in main.list_commands(context):
            command = main.get_command(context, name)
            names += (
                [f"{name} {sub}" for sub in command.commands]
                if isinstance(command, click.Group)
                else [name]
            )
    # The command launch reads and writes as run_siamese does.
    assert sorted([*COMMANDS, "launch"]) == sorted(names)
    said = succeeds("--help")
    for name in COMMANDS:
        # A longer line would be cut.
        assert re.search(rf"^  {name.split()[0]} +[A-Z][^.]+\.$", said, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_flags_inputs_and_outputs_follow_the_rules(outcomes, name):
    help_text = outcomes[name, "help"].stdout
    lines = help_text.rstrip().splitlines()
    assert outcomes[name, "help"].status == 0 and len(lines) <= 46
    assert lines[-1].startswith(f"  bert-flow {name} -")
    # This is how click prints a range without limits.
    assert "x<=None" not in help_text
    outcomes[name, "missing"].refusal("missing.tsv")
    if name in KEPT:
        outcomes[name, "kept"].refusal(KEPT[name], "exists", "--overwrite")
    if name in FOREIGN:
        outcomes[name, "foreign"].refusal(KEPT[name])


@pytest.mark.parametrize("command", ["cli --help", "run_siamese --help"])
def test_a_full_disk_below_standard_output_is_one_line(command):
    module, *arguments = command.split()
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", f"bert_flow_tf.{module}", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    refusal(done.returncode, done.stderr, "standard output: ")


@pytest.fixture(scope="module")
def inputs(tiny_encoder_dir, small_glue_dir, tmp_path_factory):
    """Arguments with which fast commands write a result, by name."""
    folder = tmp_path_factory.mktemp("inputs")
    sentences, results = folder / "sentences.txt", folder / "results.json"
    sentences.write_text("w1 w2\nw3\n" * 8)
    encoder = ["--bert_hub", tiny_encoder_dir, "--max_seq_length", 8]
    task = [*encoder, "--glue_dir", small_glue_dir]
    scored = ["--tasks", "stsb", *task]
    succeeds("evaluate", *scored, "--out", results)
    return {
        "isotropy": task,
        "encode": [*encoder, "--input", sentences],
        "evaluate": scored,
    }


@pytest.mark.parametrize("name", ["isotropy", "encode", "evaluate"])
def test_overwrite_replaces_an_earlier_result(inputs, name, tmp_path):
    result = tmp_path / KEPT[name]
    command = [*name.split(), *inputs[name], "--out", result]
    if result.suffix:
        result.write_text("earlier")
    else:
        succeeds(*command)
    first, made = files_below(tmp_path), result.stat().st_mtime_ns
    assert "exists" in refused(*command, unchanged=tmp_path)
    succeeds(*command, "--overwrite")
    assert files_below(tmp_path).keys() == first.keys()
    assert result.stat().st_mtime_ns > made
