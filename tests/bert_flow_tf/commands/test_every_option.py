"""Every option of every command changes what it calls, or is refused.

A line of each way to use a command is run twice, without an option and with it. What counts is
which functions of other rooms the command calls, with which arguments, and what it prints. A new
option must be in `VALUES`, unless its type has a value.
"""

import dataclasses
import functools
import importlib.metadata
import pathlib
import re
import shutil
import sys
from typing import Any

import click
import numpy as np
import pytest

import bert_flow_tf
from bert_flow_tf.api import BertFlow
from bert_flow_tf.cli import main
from bert_flow_tf.commands import verify
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.runtime.description import Description
from tests.bert_flow_tf import small_runs
from tests.refusals import bert_flow

_PACKAGE = pathlib.Path(bert_flow_tf.__file__).parent
_COMMANDS = str(_PACKAGE / "commands")
_OURS = (str(_PACKAGE), str(pathlib.Path(__file__).parent))
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

# The ways to use each command. Upper-case words are files of `files`; a work that takes long ends
# at its first call, which `STOPS` has.
LINES = {
    "analyses": [
        "--bert_hub ENCODER --tables 6 --glue_dir GLUE",
        "--model MODEL --tables 6 --glue_dir GLUE",
        "--bert_hub ENCODER --tables 1",
    ],
    "check-served": ["http://x/embeddings --export EXPORT", "http://x/embed --export EXPORT"],
    "compare": [
        "--bert_hub ENCODER --input CSV",
        "--model MODEL --glue_dir GLUE",
        "--sentence_transformer x --input CSV --pairs PAIRS",
    ],
    "convert": [
        "--tf1_checkpoint CHECKPOINT --out OUT",
        "--huggingface ENCODER --out OUT",
        "--bert_hub ENCODER --out OUT",
        "--bert_hub ENCODER --to_tfhub OUT",
        "--run CHECKPOINT --to_tf1 --out OUT",
        "--tf1_flow CHECKPOINT --pooling avg --out OUT",
    ],
    "duplicates": [
        "--bert_hub ENCODER --input CSV --false_matches 0.1 --out OUT.csv",
        "--model EXPORT --input CSV --threshold 0.9 --out OUT.csv",
    ],
    "encode": [
        "--bert_hub ENCODER --input CSV --out OUT.npy",
        "--model MODEL --input CSV --out OUT.npy",
        "--model EXPORT --input CSV --out OUT.npy",
        "--calibration CALIBRATION --embeddings ARRAY --out OUT.npy",
    ],
    "encode-folder": [
        "--bert_hub ENCODER --input CSV --out OUT",
        "--model EXPORT --input CSV --out OUT",
    ],
    "evaluate": [
        "--bert_hub ENCODER --tasks stsb --glue_dir GLUE",
        "--model MODEL --pairs PAIRS",
    ],
    "export": ["--model MODEL --out OUT", "--model MODEL --out OUT --format onnx --input CSV"],
    "fit": [
        "--bert_hub ENCODER --input CSV --out OUT --train_batch_size 9",
        "--bert_hub ENCODER --input CSV --out OUT --method sn",
        "--bert_hub ENCODER --embeddings PARTS --out OUT --train_batch_size 9",
        "--sentence_transformer x --input CSV --out OUT --method sn",
        "--embeddings ARRAY --out OUT --method sn",
    ],
    "isotropy": [
        "--bert_hub ENCODER --input CSV",
        "--model MODEL --pairs PAIRS",
        "--bert_hub ENCODER --glue_dir GLUE",
    ],
    "launch": [
        "--workers 1 -- --task_name=STS-B --data_dir=GLUE --output_parent_dir=OUT --exp_name=x "
        "--do_train=1"
    ],
    "pretrain": ["--bert_hub ENCODER --text CSV --out OUT"],
    "report": ["--runs SCORES", "--literature"],
    "reproduce": [
        "--bert_hub ENCODER --glue_dir GLUE --out OUT",
        "--bert_premodels PREMODELS --glue_dir GLUE --out OUT --row mine",
    ],
    "search": ["--bert_hub ENCODER --input CSV w1", "--model EXPORT --input CSV w1"],
    "similarity": ["--model MODEL w1 w2", "--bert_hub ENCODER --pairs PAIRS"],
    "threshold": [
        "--bert_hub ENCODER --input CSV --false_matches 0.1",
        "--model MODEL --input CSV --false_matches 0.1",
    ],
    "verify": ["--runs SCORES", "--whole_runs GLUE --glue_dir GLUE"],
}
# A value that is not the default, by option or by command and option.
VALUES = {
    "batch_size": "3",
    "bert_config_file": "JSON",
    "bert_name": "large",
    "calibration": "CALIBRATION",
    "colour": "id",
    "column": "other",
    "columns": "sentence2,sentence1",
    "dtype": "bfloat16",
    "export dtype": "int8",
    "embeddings": "PARTS",
    "huggingface": "ENCODER",
    "input": "CSV",
    "run": "CHECKPOINT",
    "sentence_transformer": "x",
    "steps": "200",
    "text": "CSV",
    "tf1_checkpoint": "CHECKPOINT",
    "tf1_flow": "CHECKPOINT",
    "bert_hub": "ENCODER",
    "bert_premodels": "PREMODELS",
    "export": "EXPORT",
    "encode embeddings": "ARRAY",
    "false_matches": "0.2",
    "flow_model_config": "config_l2_d3_w32",
    "format": "markdown",
    "export format": "openvino",
    "glue_dir": "GLUE",
    "html": "OUT.html",
    "input_format": "tsv",
    "keep": "id",
    "low_dim": "4",
    "max_seq_length": "7",
    "method": "natsv-2",
    "methods": "sn",
    "metric": "spearman",
    "model": "MODEL",
    "name": "mine",
    "nli_dir": "GLUE",
    "num_train_epochs": "2",
    "out": "OUT.json",
    "output_format": "npy",
    "pair_columns": "sentence2,sentence1,score",
    "pairs": "PAIRS",
    "panels": None,
    "plot": "OUT.svg",
    "pooling": "cls",
    "precision": "float16",
    "preprocess_hub": "ENCODER",
    "prompt": "w1",
    "queries": "QUERIES",
    "query_column": "2",
    "ray": "localhost:1",
    "row": "mine",
    "rows": "flow-avg",
    "runs": "SCORES",
    "seeds": "2",
    "senteval_dir": "GLUE",
    "split": "test",
    "tables": "1,6",
    "task": "SICK-R",
    "tasks": "stsb",
    "reproduce tasks": "stsb,sickr",
    "threshold": "0.5",
    "to_tfhub": "OUT",
    "top_k": "2",
    "truncate_dim": "4",
    "version": "7",
    "vocab_file": "JSON",
    "whole_runs": "GLUE",
    "workers": "2",
}
# An option that counts columns has an effect beside their numbers; a CSV read as TSV has one column.
BESIDE = {
    "no_header": "--column 1 ",
    "input_format": "--column sentence,other,id ",
    "no_pair_header": "--pair_columns 1,2,4 ",
    "similarity no_header": "--columns 1,2 ",
}
# These decide what is done with a result; the tests of each command and of pictures use them.
AFTER_WORK = {"compare format", "fit only_if_helps", "panels", "reproduce format"}


class Stop(Exception):
    """The work begins here."""


def stop(*arguments: Any, **options: Any) -> None:
    raise Stop


class Calls:
    """Record what frames of `commands` call elsewhere, with which arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []

    def __call__(self, frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        caller = frame.f_back
        if event != "call" or not code.co_filename.startswith(_OURS) or caller is None:
            return
        is_from_command = caller.f_code.co_filename.startswith(_COMMANDS)
        if is_from_command and not code.co_filename.startswith(_COMMANDS):
            # The object whose method it is need not be complete.
            given = {name: said(value) for name, value in frame.f_locals.items() if name != "self"}
            self.seen.append((code.co_qualname, given))


def said(value: object) -> str:
    """Return a value in words that are the same in every run."""
    return re.sub(r"/tmp/tmp\w+|\d+\.\d+ s", "", _ADDRESS.sub("", repr(value)))


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    rng = np.random.default_rng(0)
    words = small_runs.TINY_WORDS
    return model.fit([" ".join(rng.choice(words, 4)) for _ in range(200)], method="sn")


@pytest.fixture(scope="module")
def files(model, tiny_encoder_dir, small_glue_dir, golden_dir, tmp_path_factory):
    """The files of `LINES` by name."""
    folder = tmp_path_factory.mktemp("options")
    rows = [(f"w{i} w{j}", f"w{j} w{i} w{j}", i) for i in range(9) for j in range(i)]
    lines = [f"{a},{b},{i}" for a, b, i in [*rows, rows[0]]]
    (folder / "rows.csv").write_text("\n".join(["sentence,other,id", *lines, ""]))
    pairs = [f"{a},{b},{i % 5},{i % 3}" for a, b, i in rows]
    # The last column's name is a score, too.
    (folder / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score,4", *pairs, ""]))
    (folder / "queries.tsv").write_text("sentence\tother\nw2\tw3\n")
    (folder / "file.json").write_text("{}")
    np.save(folder / "array.npy", model.encode_pooled([a for a, _, _ in rows]))
    model.save(folder / "model")
    glue = shutil.copytree(small_glue_dir, folder / "glue")
    (glue / "SICK-R").mkdir()
    for part in ("train", "trial", "test_annotated"):
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        # Pairs of one edit distance have no correlation with it.
        lines += [
            f"{i}\t{a}\t{b} {a} {f'{a} ' * (i % 4)}\t{1 + i % 5}\tNEUTRAL" for a, b, i in rows[:40]
        ]
        (glue / "SICK-R" / f"SICK_{part}.txt").write_text("\n".join([*lines, ""]))
    for name in ("uncased_L-12_H-768_A-12", "uncased_L-24_H-1024_A-16"):
        (folder / "premodels" / name).mkdir(parents=True)
    scores = ("--tasks", "stsb", "--glue_dir", glue, "--out", folder / "scores.json")
    assert bert_flow("evaluate", "--model", folder / "model", *scores).exit_code == 0
    (folder / "export").mkdir()
    description = Description(
        max_seq_length=8,
        embedding_size=2,
        normalized=False,
        dtype="float32",
        model={},
        probes={"w1": [1.0, 0.0]},
        fingerprint="",
        stages=[{}, {"norm": "none", "low_dim": 0}],
        prompts={},
        default_prompt_name=None,
        similarity_fn_name="cosine",
        tolerance=1e-5,
    )
    write_json(folder / "export" / "export.json", description)
    BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).encode_dataset(
        [folder / "rows.csv"], folder / "parts"
    )
    return {
        "ARRAY": folder / "array.npy",
        "CALIBRATION": folder / "calibration",
        "CHECKPOINT": golden_dir / "bert_tiny" / "bert_model.ckpt",
        "CSV": folder / "rows.csv",
        "ENCODER": tiny_encoder_dir,
        "EXPORT": folder / "export",
        "GLUE": glue,
        "JSON": folder / "file.json",
        "MODEL": folder / "model",
        "PAIRS": folder / "pairs.csv",
        "PARTS": folder / "parts",
        "PREMODELS": folder / "premodels",
        "QUERIES": folder / "queries.tsv",
        "SCORES": folder / "scores.json",
    }


@pytest.fixture
def works(model, monkeypatch, request):
    """Let long works end at their call, and all models be one."""
    plain = BertFlow.from_hub(model.source.bert_hub, max_seq_length=8)

    def patch(where: str, what: Any) -> None:
        monkeypatch.setattr(f"bert_flow_tf.{where}", what)

    def found_model(*arguments: Any, **options: Any) -> BertFlow:
        return model

    def found_encoder(*arguments: Any, **options: Any) -> BertFlow:
        return plain

    class Calibrated:
        calibration = dataclasses.make_dataclass("Map", ["output_size"])(32)

        def transform(self, rows: np.ndarray) -> np.ndarray:
            return rows

    patch("api.BertFlow.from_hub", found_encoder)
    patch("api.BertFlow.from_pretrained", found_model)
    patch("export.export.export_model", stop)
    patch("api.BertFlow.fit_dataset", stop)
    patch("runtime.model.open_export", found_model)
    # The tiny encoder's words are no English ones.
    patch("report.analyses.frequency_ranks", lambda pieces: 1 + np.arange(len(pieces)))
    patch("encoder.source.resolve_encoder", lambda **given: model.source)
    patch("model.any_encoder.load_calibration", lambda path: Calibrated())
    patch("model.any_encoder.calibrate", stop)
    patch("model.any_encoder.calibrate_array", stop)
    patch("model.any_encoder.compare", stop)
    patch("commands.fit.check_sentence_transformers", lambda: None)
    patch("commands.fit.load_sentence_transformer", lambda name: name)
    patch("commands.compare.load_sentence_transformer", lambda name: name)
    patch("commands.encode_folder.connected", stop)
    patch("commands.launch.check", lambda settings: None)
    patch("commands.launch.train_on_ray", stop)
    # Records name the versions of libraries, which are slow to find.
    monkeypatch.setattr(importlib.metadata, "version", functools.cache(importlib.metadata.version))
    # The pictures are made of the results; only their drawing is left out.
    patch("report.plots.style.panels", lambda pictures: len(pictures))
    patch("report.plots.style.save", lambda figure, path: path.touch())
    patch("report.page.report_page", lambda reported, pictures, left_out: "")
    patch("training.pretrain.pretrain", stop)
    patch("original.recipe.Recipe.encoder_fingerprint", lambda recipe: "0" * 64)
    patch("original.recipe.run_stages", stop)
    patch("original.tf1_run.convert_tf1_run", stop)
    patch("original.tf1_run.write_tf1_run", stop)
    patch("export.tf_hub.write_tf_hub", stop)
    patch("encoder.convert.encoder_folder.write_encoder_folder", stop)
    row = {"index": 0, "embedding": [1.0, 0.0]}
    answers = {"embed": [row["embedding"]], "embeddings": {"data": [row]}}
    patch("commands.check_served._answer", lambda url, request: answers[url.rpartition("/")[2]])
    golden = {"deviations": [("flow: z", 0.0, 1.0)], "failed": [], "not_run": []}
    monkeypatch.setattr(verify, "_golden", lambda: golden)
    monkeypatch.setattr(verify, "_replayed", lambda *given: [("loss", 0.0, 1.0)])
    if "analyses" in request.node.name:
        patch("api.BertFlow.fit", found_encoder)
    else:
        patch("api.BertFlow.fit", stop)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of a command."""

    refusal: str
    calls: list[tuple[str, dict[str, str]]]
    printed: str


def run(name: str, line: str, files: dict[str, Any], folder: pathlib.Path) -> Outcome:
    """Run a command; return its calls, or the line that refuses it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = [
        str(files.get(word, word)).replace("OUT", str(folder / "out")) for word in line.split(" ")
    ]
    calls = Calls()
    sys.setprofile(calls)
    try:
        outcome = bert_flow(name, *words)
    finally:
        sys.setprofile(None)
    if outcome.exit_code == 2 and outcome.stderr.splitlines()[-1].startswith("error: "):
        return Outcome(outcome.stderr.splitlines()[-1], [], "")
    ended = outcome.exception
    assert ended is None or isinstance(ended, Stop | SystemExit), (line, ended, outcome.output)
    return Outcome("", calls.seen, said(outcome.stdout))


def options_of(name: str) -> list[click.Option]:
    with click.Context(main) as context:
        command = main.get_command(context, name)
    return [one for one in command.params if isinstance(one, click.Option) and not one.is_eager]


def words_of(name: str, option: click.Option) -> str:
    """Return an option with a value that is not its default."""
    flag = option.opts[0]
    short = flag.removeprefix("--")
    if option.is_flag and short not in ("whole_runs",):
        return flag
    value = VALUES.get(f"{name} {short}", VALUES.get(short))
    if short == "panels":
        value = re.search(r"some of (\w+)", str(option.help))[1]
    elif value is None and option.type.name == "integer":
        value = "5"
    elif value is None and option.type.name == "float":
        value = "0.25"
    assert value is not None, f"{flag} of {name} has no value here"
    return f"{flag} {value}"


@pytest.mark.parametrize("name", LINES)
def test_an_option_has_an_effect_or_is_refused(name, files, works, require, tmp_path):
    for library in ("wordfreq", "rapidfuzz") if name == "analyses" else ():
        require(library)
    options = {one.opts[0].removeprefix("--"): one for one in options_of(name)}
    accepted = set()

    @functools.cache
    def outcome(line):
        return run(name, line, files, tmp_path / "run")

    for line in LINES[name]:
        plain = outcome(line)
        assert not plain.refusal, (line, plain.refusal)
        assert run(name, line, files, tmp_path / "run") == plain, f"{line} is not the same twice"
        for short, option in options.items():
            if f"--{short} " in f"{line} " or f"--{short}" in option.secondary_opts:
                accepted.add(short)
                continue
            given = words_of(name, option)
            fixed = BESIDE.get(f"{name} {short}", BESIDE.get(short, ""))
            needed = [one for one in getattr(option, "needs", ()) if one in options]
            besides = [fixed]
            if needed and not any(f"--{one} " in f"{line} " for one in needed):
                assert outcome(f"{given} {line}").refusal, (line, given)
                besides = [f"{fixed}{words_of(name, options[one])} " for one in needed]
            for beside in besides:
                found = outcome(f"{beside}{given} {line}")
                if found.refusal:
                    continue
                accepted.add(short)
                if not AFTER_WORK.intersection((short, f"{name} {short}")):
                    same = outcome(f"{beside}{line}")
                    assert found != same, f"bert-flow {name} {beside}{line} ignores {given}"
    assert accepted == {*options}, f"{ {*options} - accepted } of {name} never have an effect"


def test_every_command_is_here():
    with click.Context(main) as context:
        assert {*LINES} == {*main.list_commands(context)}
