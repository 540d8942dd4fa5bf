"""The stages of the recipe and what is skipped; runs and exports are a stand-in's."""

import json
import pathlib
import subprocess
import sys

import pytest

from bert_flow_tf.recipe.run import Outcome, Stage, main, read_environment, table
from bert_flow_tf.results.records import Scores, TaskScores
from tests.bert_flow_tf import records
from tests.bert_flow_tf.recipe.workplace import Workplace
from tests.bert_flow_tf.small_runs import write_tsv
from tests.refusals import user_error

_NAMES = [
    "nli_demo_1234",
    "nli_demo_1234_STS-B_avg",
    "nli_demo_1234_STS-B_avg-last-2",
    "nli_demo_1234_STS-B_avg_flow",
    "nli_demo_1234_STS-B_avg-last-2_flow",
    "nli_demo_1234_STS-B_avg_flow",
    "nli_demo_1234_STS-B_avg-last-2_flow",
    "nli_demo_1234_STS-B_avg-last-2_flow",
]


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    return Workplace(tmp_path, monkeypatch)


def test_stages_are_nli_then_scores_then_flow_then_scores_then_export(workplace):
    outcomes = workplace.run()
    calls = workplace.calls()
    assert [call["exp_name"] for call in calls] == _NAMES and calls[-1]["exports"]
    # Ranks 1, 2, 4, 3 against 1, 2, 3, 4.
    scores = [one.scores and round(one.scores.tasks["stsb"].spearman["all"], 6) for one in outcomes]
    assert scores == [None, 0.8, 0.8, None, None, 0.8, 0.8, None]
    written = json.loads((workplace.root / "exp" / _NAMES[1] / "recipe_scores.json").read_text())
    (scored,) = written["tasks"].values()
    assert scored["agreement"]["gold"] == [1, 2, 4, 3]


def test_settings_are_the_originals_and_all_begin_with_the_nli_run(workplace):
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


def test_overwrite_deletes_and_does_every_stage_again_also_when_interrupted(workplace):
    workplace.run()
    left = workplace.root / "exp" / "nli_demo_1234" / "left_over"
    left.write_text("")
    workplace.failing = "nli_demo_1234_STS-B_avg"
    workplace.calls()
    with user_error("something failed"):
        workplace.run(overwrite=True)
    workplace.failing = None
    workplace.run()
    assert workplace.names() == [*_NAMES[:2], *_NAMES[1:]]
    assert not left.exists()


def test_overwrite_deletes_nothing_that_is_no_run(workplace):
    folder = workplace.root / "exp" / _NAMES[1]
    folder.mkdir(parents=True)
    (folder / "mine").touch()
    with user_error(str(folder)):
        workplace.run(overwrite=True)
    assert (folder / "mine").exists() and not workplace.calls()


def test_tf1_checkpoints_are_named_by_the_originals_trio(workplace):
    folder = workplace.root / "premodels" / "uncased_L-24_H-1024_A-16"
    folder.mkdir(parents=True)
    recipe = read_environment({**workplace.environ, "BERT_NAME": "large", "BERT_PREMODELS": str(folder.parent)})
    files = {"vocab_file": "vocab.txt", "bert_config_file": "bert_config.json", "init_checkpoint": "bert_model.ckpt"}
    (nli,) = recipe.nli()
    assert vars(nli.settings).items() >= {flag: f"{folder}/{name}" for flag, name in files.items()}.items()
    assert nli.settings.exp_name == "nli_large_1234"


@pytest.mark.parametrize(
    ("variables", "hub", "name"),
    [
        ({"BERT_NAME": "large"}, "large", "large"),
        ({"BERT_HUB": "https://tfhub.dev/google/small_bert/4"}, None, "small_bert_4"),
        ({"BERT_HUB": "http://127.0.0.1/models/tiny?x=1", "BERT_NAME": "large"}, None, "tiny"),
    ],
)
def test_encoder_without_tf1_checkpoints_is_a_hub_handle(workplace, variables, hub, name):
    recipe = read_environment({**workplace.environ, **variables})
    assert recipe.encoder_flags == {"bert_hub": hub or variables["BERT_HUB"]}
    assert recipe.encoder_name == name


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
def test_a_wrong_variable_ends_with_one_line_and_status_2(workplace, capsys, variables, named):
    assert main([], {**workplace.environ, **variables}) == 2
    written = capsys.readouterr().err
    assert written.startswith("error: ") and written.count("\n") == 1
    assert named in written


def test_an_unknown_argument_is_named(capsys):
    assert main(["--overwite"], {}) == 2
    assert "'--overwite'" in capsys.readouterr().err


def _outcome(title, seconds, pearson=None, spearman=None):
    scores = None
    if spearman is not None:
        of = {"title": "STS-B", "metric": "spearman", "split": "test", "source": "x", "pairs": 4}
        found = TaskScores(**of, pearson={"all": pearson}, spearman={"all": spearman})
        scores = Scores(made_by=records.MADE_BY, model=records.model(), tasks={"stsb": found})
    return Outcome(Stage(title, None), seconds, scores)


def test_table_has_scores_times_100_and_says_what_was_done_before():
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
def test_table_marks_a_fall_by_the_flow_and_says_why_it_may_be(spearman, mark):
    outcomes = [
        _outcome(f"STS-B, avg{flow}", 8.0, 0.8, score) for flow, score in (("", 0.82034), (" + flow", spearman))
    ]
    _, _, _, row, _, _, changes, *why = table(outcomes).to_text().splitlines()
    assert row.partition("8.0")[2].strip() == mark
    assert changes == f"Spearman with the flow: {100 * (spearman - 0.82034):+.2f} STS-B, avg."
    assert "in a cone" in why[0]


@pytest.mark.parametrize(("module", "script"), [("run", "siamese_then_flow.sh"), ("effect", "paper_effect.sh")])
def test_help_needs_no_tensorflow_and_is_that_of_the_script(module, script):
    use = f"from bert_flow_tf.recipe.{module} import main; main(['-h'])"
    source = f"import sys; {use}; sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    path = pathlib.Path(__file__).parents[3] / "run_scripts" / script
    assert subprocess.run(["bash", path, "--help"], capture_output=True, text=True, check=True).stdout == done.stdout
