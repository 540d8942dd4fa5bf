"""Every snippet and the notebook of docs/ run, on a small BERT."""

import inspect
import json
import pathlib
import re
import shlex

import numpy as np
import pytest

from bert_flow_tf import BertFlow, sample_data
from bert_flow_tf.calibration import flow_training, learning
from bert_flow_tf.commands.fit import fit
from bert_flow_tf.common.settings import flag_fields
from bert_flow_tf.encoder import source
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.sample_data import sample_glue_dir
from glow import FlowCalibrator, optimizer
from tests.bert_flow_tf import small_runs
from tests.refusals import succeeds
from tests.small_bert import write_small_bert

pytestmark = pytest.mark.usefixtures("small_default_flow", "shared_encoders")

_ROOT = pathlib.Path(__file__).parents[1]
_GUIDES = {path.stem: path.read_text(encoding="utf-8") for path in (_ROOT / "docs").glob("*.md")}
# The guide of serving has a test of its own: it needs a server.
_HERE = ("adapt", "python", "questions", "reproduce")
_SNIPPET = re.compile(r"<!-- snippet: ([^\n]+) -->\n```(\w+)\n(.+?)```\n", re.DOTALL)
_SNIPPETS = {name: text for guide in _HERE for name, _, text in _SNIPPET.findall(_GUIDES[guide])}
# This command is run by tests/test_readme.py.
_NOT_RUN = {"reproduce": 1}


@pytest.fixture(scope="module")
def workplace(documented_encoder_dir, tmp_path_factory):
    """Folder with what the snippets read."""
    folder = tmp_path_factory.mktemp("docs")
    small_runs.write_sentences(folder / "sentences.txt", 64)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("BERT_FLOW_CACHE", str(folder / "cache"))
        patch.setattr(source, "demo_encoder_dir", lambda: documented_encoder_dir)
        yield folder


def run_python(name):
    """The names that a Python snippet leaves."""
    names = {}
    exec(compile(_SNIPPETS[name], name, "exec"), names)
    return names


def run_commands(name, **fewer):
    """Run a snippet's `bert-flow` commands, with these values of options."""
    lines = _SNIPPETS[name].replace('"$GLUE_DIR"', shlex.quote(str(sample_glue_dir()))).splitlines()
    if lines[0].startswith("GLUE_DIR="):
        assert "sample_glue_dir()" in lines.pop(0)
    for line in lines:
        for option, value in fewer.items():
            line = re.sub(rf"--{option} \d+", f"--{option} {value}", line)
        program, *arguments = shlex.split(line)
        assert program == "bert-flow"
        succeeds(*arguments)


def test_every_snippet_is_run_by_a_test():
    assert set(_SNIPPETS) == {
        "adapt",
        "fit",
        "load",
        "tf.data",
        "commands",
        "calibrator",
        "chinese",
        "reproduce",
    }
    for guide in _HERE:
        fenced = re.findall(r"^```(?:bash|python)$", _GUIDES[guide], re.MULTILINE)
        assert len(fenced) == len(_SNIPPET.findall(_GUIDES[guide])) + _NOT_RUN.get(guide, 0), guide


def test_reference_says_in_the_repository_where_its_text_is():
    for page in (_ROOT / "docs" / "reference").glob("*.md"):
        note = re.search(r"<!-- repository -->\n(.+)\n\n", page.read_text(encoding="utf-8"))[1]
        links = re.findall(r"\]\(([^)]+)\)", note)
        assert links and all((page.parent / link).exists() for link in links), page
        assert "--help" in note or "help(" in note, page


def test_table_of_both_trainings_has_the_defaults_of_the_code(documented_encoder_dir):
    rows = {
        what: (of_run, of_fit)
        for what, of_run, of_fit in re.findall(
            r"^\| (.+?) \| (.+) \| (.+) \|$", _GUIDES["python"], re.MULTILINE
        )
    }

    def figures(what):
        return [
            [float(one.replace(",", "")) for one in re.findall(r"\d[\d,.e-]*\d|\d", cell)]
            for cell in rows[what]
        ]

    flags = {field.name: field.default for field in flag_fields(RunSettings)}
    of_fit = {name: one.default for name, one in inspect.signature(BertFlow.fit).parameters.items()}
    options = {option.opts[0].removeprefix("--"): option.default for option in fit.params}
    batch, rate = of_fit["batch_size"], of_fit["learning_rate"]
    of_command = (options["train_batch_size"], options["flow_learning_rate"], options["seed"])
    assert of_command == (batch, rate, of_fit["seed"])
    assert figures("a step sees") == [
        [flags["train_batch_size"], 2 * flags["train_batch_size"]],
        [batch],
    ]
    assert figures("epochs") == [[flags["num_train_epochs"], 1], [1, flow_training.DEFAULT_STEPS]]
    assert figures("optimiser")[0] == [1, optimizer.DECAY_RATE, optimizer.CLIP_NORM]
    assert figures("learning rate of the flow") == [[flags["flow_learning_rate"]], [rate]]
    assert figures("encoder")[0] == [0, flags["learning_rate"], flags["warmup_proportion"]]
    length = BertFlow.from_hub(documented_encoder_dir).max_seq_length
    assert figures("longest sentence") == [[flags["max_seq_length"]], [256]] and length <= 256
    assert figures("held out")[1] == [
        of_fit["dev_fraction"],
        learning.ENOUGH_FOR_THRESHOLD,
        learning._MOST_HELD_OUT,
    ]


def test_own_sentences_are_calibrated_and_saved(workplace):
    fitted = run_python("fit")
    loaded = run_python("load")
    np.testing.assert_array_equal(loaded["model"].encode("w1 w2"), fitted["model"].encode("w1 w2"))
    assert loaded["drawn"].shape == (5, 32)
    run_python("tf.data")
    run_commands("commands")
    assert np.load("embeddings.npy").shape == (64, 32)
    assert BertFlow.from_pretrained("my_other_model").flow is not None


def test_a_chinese_bert_needs_no_segmentation(workplace, golden_dir, capsys):
    characters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气很好。不我"]
    write_small_bert(golden_dir / "bert_tiny", workplace / "chinese_bert", pieces=characters)
    model = run_python("chinese")["model"]
    assert capsys.readouterr().out.splitlines()[0] == "9"
    pieces = model.tokenize(["今天天气很好。"])["input_word_ids"].numpy()
    # No character is unknown.
    assert 1 not in pieces


def test_any_matrix_is_calibrated(workplace):
    names = run_python("calibrator")
    np.testing.assert_allclose(names["again"], names["embeddings"], rtol=0, atol=1e-4)
    assert names["stream"].n_steps_ == 2


def test_tables_and_analyses_are_made_of_the_sample_data(workplace):
    run_commands("reproduce")


def test_a_bert_learns_text_then_a_flow_and_is_exported(workplace):
    # The warm-up has one step fewer.
    run_commands("adapt", steps=101)
    assert (workplace / "my_export" / "1" / "saved_model.pb").is_file()
    assert (workplace / "encoders" / "mine" / "source.json").is_file()


def test_the_notebook_runs_and_holds_the_outputs_of_one_run(workplace, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    sentences = (workplace / "sentences.txt").read_text().splitlines()
    monkeypatch.setattr(sample_data, "sample_sentences", lambda: sentences * 2)
    cells = json.loads((_ROOT / "docs" / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    code, names = [cell for cell in cells if cell["cell_type"] == "code"], {}
    for cell in code:
        exec("".join(cell["source"]), names)
    assert names["change"].before.mean_cosine > names["change"].after.mean_cosine
    assert (workplace / "first_steps_export" / "1" / "saved_model.pb").is_file()
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1


def test_arguments_that_documents_name_exist():
    pages = [_ROOT / "README.md", *(_ROOT / "docs").glob("*.md"), *(_ROOT / "docs").glob("*.ipynb")]
    calls = re.findall(
        r"\b(\w+)\(([^()]*)", "".join(path.read_text(encoding="utf-8") for path in pages)
    )
    known = {"FlowCalibrator": FlowCalibrator, **vars(BertFlow)}
    named = [
        (name, one)
        for name, given in calls
        if name in known
        for one in re.findall(r"(\w+)=", given)
    ]
    assert len(named) > 10
    for name, argument in named:
        taken = [
            getattr(BertFlow, name, known[name]),
            *([BertFlow.from_hub] if name == "demo" else ()),
        ]
        assert any(argument in inspect.signature(one).parameters for one in taken), (
            f"{name}({argument}=…)"
        )
