"""The recipe's stages, with a stand-in for runs and exports."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from bert_flow_tf.paper.figures import PRESETS
from bert_flow_tf.recipe.run import Outcome, Stage, main, read_environment, table
from bert_flow_tf.results.records import Scores, TaskScores
from tests.bert_flow_tf import records
from tests.bert_flow_tf.recipe.workplace import Workplace
from tests.bert_flow_tf.small_runs import write_tsv
from tests.refusals import refused_by, user_error

_SCORED = ("avg", "avg-last-2", "avg_flow", "avg-last-2_flow")
_NAMES = ["nli_demo_1234", *(f"nli_demo_1234_STS-B_{kind}" for kind in (*_SCORED, *_SCORED[2:], _SCORED[-1]))]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    return Workplace(tmp_path, monkeypatch)


def test_stages_are_nli_scores_flow_scores_and_export(workplace):
    outcomes = workplace.run()
    calls = workplace.calls()
    assert [call["exp_name"] for call in calls] == _NAMES and calls[-1]["exports"]
    # The ranks are 1, 2, 4, 3 against 1, 2, 3, 4.
    scores = [one.scores and round(one.scores.tasks["stsb"].spearman["all"], 6) for one in outcomes]
    assert scores == [None, 0.8, 0.8, None, None, 0.8, 0.8, None]
    written = json.loads((workplace.root / "exp" / _NAMES[1] / "recipe_scores.json").read_text())
    (scored,) = written["tasks"].values()
    assert scored["agreement"]["gold"] == [1, 2, 4, 3]


def test_settings_are_the_originals(workplace):
    workplace.run(RANDOM_SEED="7", INIT_CKPT="elsewhere/model.ckpt")
    calls = workplace.calls()[:-1]
    assert all(values["max_seq_length"] == 64 and values["seed"] == 7 for values in calls)
    nli, plain, flow = calls[0], calls[1], calls[3]
    expected = {"task_name": "ALLNLI", "num_train_epochs": 1.0, "learning_rate": 2e-5, "train_batch_size": 16}
    assert nli.items() >= expected.items()
    assert plain.items() >= {"flow": 0, "num_examples": 0, "do_predict": True, "do_train": False}.items()
    expected = {"flow": 1, "flow_loss": 1, "flow_learning_rate": 1e-3, "train_batch_size": 32, "num_examples": 0}
    assert flow.items() >= (expected | {"use_full_for_training": 1, "flow_model_config": "config_l3_d3_w32"}).items()
    assert nli["init_checkpoint"] == "elsewhere/model.ckpt"
    assert {values["init_checkpoint"] for values in calls[1:]} == {str(workplace.root / "exp" / "nli_demo_7")}


def test_every_row_of_the_paper_trains_what_it_says(workplace):
    recipe = read_environment({**workplace.environ, "SKIP_NLI": "1"})
    rows = {name: recipe.preset(preset) for name, preset in PRESETS.items()}
    learned = [vars(made[0].settings) for made in rows.values() if len(made) > 1]
    names = ("task_name", "use_full_for_training", "num_train_epochs", "flow_learning_rate", "sentence_embedding_type")
    assert [tuple(values[name] for name in names) for values in learned] == [
        ("STS-B", 1, 1.0, 1e-3, "avg-last-2"),
        ("STS-B", 0, 1.0, 1e-3, "avg-last-2"),
        ("ALLNLI", 0, 0.15, 2e-5, "avg-last-2"),
    ]
    assert len({values["exp_name"] for values in learned}) == 3
    for name, made in rows.items():
        values = vars(made[-1].settings)
        assert (values["task_name"], values["do_predict"]) == ("STS-B", True)
        assert values["sentence_embedding_type"] == ("avg" if name == "avg" else "avg-last-2")
    for name in ("flow-target", "flow-train"):
        assert len({stage.settings.output_dir for stage in rows[name]}) == 1


def test_skip_nli_begins_with_the_given_checkpoint(workplace):
    (workplace.glue / "MNLI").rmdir()
    workplace.run(SKIP_NLI="1", INIT_CKPT="elsewhere/model.ckpt")
    calls = workplace.calls()[:-1]
    assert {values["task_name"] for values in calls} == {"STS-B"}
    assert {values["init_checkpoint"] for values in calls} == {"elsewhere/model.ckpt"}


def test_after_a_failed_stage_the_next_run_goes_on_there(workplace):
    workplace.failing = "nli_demo_1234_STS-B_avg_flow"
    with user_error("something failed"):
        workplace.run()
    assert workplace.names() == _NAMES[:4]
    workplace.failing = None
    outcomes = workplace.run()
    # An encoder as it is is predicted with again.
    assert workplace.names() == [*_NAMES[1:3], *_NAMES[3:]]
    assert [one.seconds is None for one in outcomes] == [True] + [False] * 7


def test_another_seed_or_task_has_stages_of_its_own(workplace):
    workplace.run()
    workplace.cosines["SICK-R"] = workplace.cosines["STS-B"]
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    rows = [["1", "a", "b", gold, "N"] for gold in "1243"]
    write_tsv(workplace.glue / "SICK-R" / "SICK_test_annotated.txt", [header, *rows])
    workplace.calls()
    workplace.run(TASK_NAME="sick-r")
    # NLI is shared, and done.
    assert workplace.names()[0] == "nli_demo_1234_SICK-R_avg"
    workplace.run(RANDOM_SEED="2")
    assert workplace.names()[0] == "nli_demo_2"


def test_overwrite_does_every_stage_again_and_deletes_runs_alone(workplace):
    workplace.run()
    left = workplace.root / "exp" / _NAMES[0] / "left_over"
    left.write_text("")
    workplace.failing = _NAMES[1]
    workplace.calls()
    with user_error("something failed"):
        workplace.run(overwrite=True)
    workplace.failing = None
    workplace.run()
    # The stages that the failed command did not reach are done again, too.
    assert workplace.names() == [*_NAMES[:2], *_NAMES[1:]]
    assert not left.exists()
    mine = workplace.root / "exp" / _NAMES[1] / "mine"
    mine.touch()
    with user_error(str(mine.parent)):
        workplace.run(overwrite=True)
    assert mine.exists() and not workplace.calls()


def test_encoders_are_the_originals_trio_or_a_hub_handle(workplace):
    folder = workplace.root / "premodels" / "uncased_L-24_H-1024_A-16"
    folder.mkdir(parents=True)
    recipe = read_environment({**workplace.environ, "BERT_NAME": "large", "BERT_PREMODELS": str(folder.parent)})
    files = {"vocab_file": "vocab.txt", "bert_config_file": "bert_config.json", "init_checkpoint": "bert_model.ckpt"}
    (nli,) = recipe.nli()
    assert vars(nli.settings).items() >= {flag: f"{folder}/{name}" for flag, name in files.items()}.items()
    assert nli.settings.exp_name == "nli_large_1234"
    for variables, hub, name in (
        ({"BERT_NAME": "large"}, "large", "large"),
        ({"BERT_HUB": "https://tfhub.dev/g/small_bert/4"}, "https://tfhub.dev/g/small_bert/4", "small_bert_4"),
        ({"BERT_HUB": "http://here/models/tiny?x=1", "BERT_NAME": "large"}, "http://here/models/tiny?x=1", "tiny"),
    ):
        recipe = read_environment({**workplace.environ, **variables})
        assert (recipe.encoder_flags, recipe.encoder_name) == ({"bert_hub": hub}, name)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"BERT_NAME": "huge"}, "BERT_NAME: found 'huge'"),
        ({"BERT_NAME": "large-wwm"}, "BERT_NAME: found 'large-wwm'"),
        ({"BERT_PREMODELS": "nowhere"}, "BERT_PREMODELS: no folder nowhere/uncased_L-12_H-768_A-12"),
        ({"TASK_NAME": "MNLI"}, "mnli"),
        ({"RANDOM_SEED": "one"}, "RANDOM_SEED: found 'one'"),
        ({"SKIP_NLI": "yes"}, "SKIP_NLI: found 'yes'"),
        ({"GLUE_DIR": "nowhere"}, "nowhere/STS-B"),
        ({"OUTPUT_PARENT_DIR": "gs://bucket/exp"}, "OUTPUT_PARENT_DIR"),
    ],
)
def test_a_wrong_variable_or_argument_is_named(workplace, variables, named):
    assert "'--overwite'" in refused_by(main, "--overwite")
    assert named in refused_by(lambda arguments: main(arguments, {**workplace.environ, **variables}))


def _outcome(title, seconds, pearson=None, spearman=None):
    scores = None
    if spearman is not None:
        of = {"title": "STS-B", "metric": "spearman", "split": "test", "source": "x", "pairs": 4}
        found = TaskScores(**of, pearson={"all": pearson}, spearman={"all": spearman})
        scores = Scores(made_by=records.MADE_BY, model=records.model(), tasks={"stsb": found})
    return Outcome(Stage(title, None), seconds, scores)


def test_table_has_scores_times_100():
    outcomes = [_outcome("NLI fine-tuning", None), _outcome("STS-B, avg", 8.0, 0.82741, 0.82034)]
    assert table(outcomes).to_text().splitlines() == [
        "stage            Pearson  Spearman  seconds",
        "-" * 56,
        "NLI fine-tuning        -         -        -  done before",
        "STS-B, avg         82.74     82.03      8.0",
        "-" * 56,
        "total                  -         -      8.0",
    ]


@pytest.mark.parametrize(("spearman", "mark"), [(0.815, "falls by 0.53"), (0.816, ""), (0.9, "")])
def test_table_marks_a_fall_by_the_flow(spearman, mark):
    outcomes = [
        _outcome(f"STS-B, avg{flow}", 8.0, 0.8, score) for flow, score in (("", 0.82034), (" + flow", spearman))
    ]
    heads, _, _, row, _, _, *why = table(outcomes).to_text().splitlines()
    change = f"{100 * (spearman - 0.82034):+.2f}" + (f" ({mark})" if mark else "")
    assert heads.split()[-2:] == ["change", "seconds"] and row.endswith(f"{change}      8.0")
    assert ["in a cone" in line for line in why[:1]] == ([True] if mark else [])


@pytest.mark.parametrize(("module", "script"), [("recipe", "siamese_then_flow"), ("recipe.effect", "paper_effect")])
def test_help_needs_no_tensorflow_and_is_that_of_the_script(module, script, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise AssertionError")
    root = pathlib.Path(__file__).parents[3]
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}:{root}"}
    script = root / "run_scripts" / f"{script}.sh"
    commands = ([sys.executable, "-m", f"bert_flow_tf.{module}", "-h"], ["bash", script, "--help"])
    ours, its = (subprocess.run(one, env=environ, capture_output=True, text=True, check=True) for one in commands)
    assert ours.stdout == its.stdout != ""
