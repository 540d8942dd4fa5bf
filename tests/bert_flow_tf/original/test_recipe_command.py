"""The recipe's stages, settings and table."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from bert_flow_tf.original.recipe import (
    Outcome,
    Stage,
    main,
    read_environment,
    recipe_stages,
    run_stages,
    table,
)
from bert_flow_tf.report.paper import PRESETS
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks.protocols import TaskScores
from bert_flow_tf.tasks.scores import ScoredRun
from tests.bert_flow_tf import records, small_runs
from tests.refusals import refused_by, user_error

_SCORED = ("avg", "avg-last-2", "avg_flow", "avg-last-2_flow")
_NAMES = ["nli_demo_1234", *(f"nli_demo_1234_STS-B_{kind}" for kind in (*_SCORED, *_SCORED[2:]))]


@pytest.fixture
def variables(tmp_path):
    """Variables of a recipe on the sample data."""
    return {"GLUE_DIR": sample_glue_dir(), "OUTPUT_PARENT_DIR": str(tmp_path / "exp")}


def _stages(variables, **more):
    """Return the settings of each stage but the last, which exports."""
    return [
        small_runs.flat(stage.settings)
        for stage in recipe_stages(read_environment(variables | more))[:-1]
    ]


def test_stages_and_settings_are_the_originals(variables, tmp_path):
    stages = _stages(variables, INIT_CKPT="elsewhere/model.ckpt")
    assert [stage["exp_name"] for stage in stages] == _NAMES
    assert all(stage["max_seq_length"] == 64 and stage["seed"] == 1234 for stage in stages)
    nli, plain, flow = stages[0], stages[1], stages[3]
    expected = {
        "task_name": "ALLNLI",
        "num_train_epochs": 1.0,
        "learning_rate": 2e-5,
        "train_batch_size": 16,
    }
    assert nli.items() >= (expected | {"init_checkpoint": "elsewhere/model.ckpt"}).items()
    assert (
        plain.items()
        >= {"flow": 0, "num_examples": 0, "do_predict": True, "do_train": False}.items()
    )
    expected = {
        "flow": 1,
        "flow_loss": 1,
        "flow_learning_rate": 1e-3,
        "train_batch_size": 32,
        "num_examples": 0,
    }
    assert (
        flow.items()
        >= (
            expected | {"use_full_for_training": 1, "flow_model_config": "config_l3_d3_w32"}
        ).items()
    )
    assert {stage["init_checkpoint"] for stage in stages[1:]} == {str(tmp_path / "exp" / _NAMES[0])}
    # Without NLI, all begin with the given checkpoint.
    stages = _stages(variables, SKIP_NLI="1", INIT_CKPT="elsewhere/model.ckpt")
    assert {(one["task_name"], one["init_checkpoint"]) for one in stages} == {
        ("STS-B", "elsewhere/model.ckpt")
    }


def test_every_row_of_the_paper_trains_what_it_says(variables):
    recipe = read_environment(variables | {"SKIP_NLI": "1"})
    names = ("task_name", "use_full_for_training", "num_train_epochs", "flow_learning_rate")
    learned = {"flow-target": ("STS-B", 1, 1.0, 1e-3), "flow-train": ("STS-B", 0, 1.0, 1e-3)}
    learned |= {"flow-avg": ("STS-B", 1, 1.0, 1e-3), "flow-nli": ("ALLNLI", 0, 0.15, 2e-5)}
    for name, preset in PRESETS.items():
        *training, scoring = (small_runs.flat(stage.settings) for stage in recipe.preset(preset))
        pooling = "avg" if name in ("avg", "flow-avg") else "avg-last-2"
        assert [
            (run["sentence_embedding_type"], *(run[one] for one in names)) for run in training
        ] == ([(pooling, *learned[name])] if name in learned else [])
        assert scoring["sentence_embedding_type"] == pooling
        assert (scoring["task_name"], scoring["do_predict"]) == ("STS-B", True)


def test_overwrite_deletes_runs_alone(variables, tmp_path):
    mine = tmp_path / "exp" / _NAMES[1] / "mine"
    mine.parent.mkdir(parents=True)
    mine.touch()
    with user_error(str(mine.parent)):
        run_stages(recipe_stages(read_environment(variables)), overwrite=True)
    assert mine.exists()


def test_encoders_are_the_originals_trio_or_a_hub_handle(variables, tmp_path):
    folder = tmp_path / "premodels" / "uncased_L-24_H-1024_A-16"
    folder.mkdir(parents=True)
    recipe = read_environment(
        variables | {"BERT_NAME": "large", "BERT_PREMODELS": str(folder.parent)}
    )
    files = {
        "vocab_file": "vocab.txt",
        "bert_config_file": "bert_config.json",
        "init_checkpoint": "bert_model.ckpt",
    }
    (nli,) = recipe.nli()
    assert (
        vars(nli.settings.model).items()
        >= {flag: f"{folder}/{name}" for flag, name in files.items()}.items()
    )
    assert nli.settings.exp_name == "nli_large_1234"
    for more, hub, name in (
        ({"BERT_NAME": "large"}, "large", "large"),
        (
            {"BERT_HUB": "https://tfhub.dev/g/small_bert/4"},
            "https://tfhub.dev/g/small_bert/4",
            "small_bert_4",
        ),
        (
            {"BERT_HUB": "http://here/models/tiny?x=1", "BERT_NAME": "large"},
            "http://here/models/tiny?x=1",
            "tiny",
        ),
    ):
        recipe = read_environment(variables | more)
        assert (recipe.encoder_flags, recipe.encoder_name) == ({"bert_hub": hub}, name)


def test_a_wrong_variable_or_argument_is_named(variables):
    assert "'--overwite'" in refused_by(main, "--overwite")
    for named, wrong in {
        "BERT_NAME: found 'huge'": {"BERT_NAME": "huge"},
        "BERT_NAME: found 'large-wwm'": {"BERT_NAME": "large-wwm"},
        "BERT_PREMODELS: no folder nowhere/uncased_L-12_H-768_A-12": {"BERT_PREMODELS": "nowhere"},
        "mnli": {"TASK_NAME": "MNLI"},
        "RANDOM_SEED: found 'one'": {"RANDOM_SEED": "one"},
        "nowhere/STS-B": {"GLUE_DIR": "nowhere"},
        "OUTPUT_PARENT_DIR": {"OUTPUT_PARENT_DIR": "gs://bucket/exp"},
    }.items():
        assert named in refused_by(lambda arguments, of=wrong: main(arguments, variables | of))


def test_table_has_scores_times_100_and_explains_a_fall():
    def outcome(title, seconds, spearman):
        of = {
            "title": "STS-B",
            "metric": "spearman",
            "split": "test",
            "source": "x",
            "pairs": 4,
            "data": "",
        }
        found = TaskScores(**of, by_metric={"pearson": {"all": 0.8}, "spearman": {"all": spearman}})
        run = ScoredRun(model=records.model(), tasks={"stsb": found})
        return Outcome(Stage(title, None), seconds, run)

    earlier, plain = (
        Outcome(Stage("NLI fine-tuning", None), None, None),
        outcome("STS-B, avg", 8.0, 0.82034),
    )
    for after, change, notes in (
        (0.815, "-0.53", 2),
        (0.816, "-0.43", 0),
        (0.9, "+7.97", 0),
    ):
        outcomes = [earlier, plain, outcome("STS-B, avg + flow", 4.5, after)]
        lines = [re.split(r" {2,}", line) for line in table(outcomes).to_text().splitlines()]
        assert lines[0] == ["stage", "Pearson", "Spearman", "change", "seconds"]
        assert lines[2] == ["NLI fine-tuning", "-", "-", "-", "-", "done before"]
        assert lines[3] == ["STS-B, avg", "80.00", "82.03", "-", "8.0"]
        assert lines[4] == ["STS-B, avg + flow", "80.00", f"{100 * after:.2f}", change, "4.5"]
        assert lines[6] == ["total", "-", "-", "-", "12.5"] and len(lines) == 7 + notes


@pytest.mark.parametrize(
    ("module", "script"),
    [
        ("bert_flow_tf.original.recipe", "siamese_then_flow"),
        ("benchmarks.paper_effect", "paper_effect"),
    ],
)
def test_help_needs_no_tensorflow_and_is_that_of_the_script(module, script, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise AssertionError")
    root = pathlib.Path(__file__).parents[3]
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}:{root}"}
    script = root / "run_scripts" / f"{script}.sh"
    commands = ([sys.executable, "-m", module, "-h"], ["bash", script, "--help"])
    ours, its = (
        subprocess.run(one, env=environ, capture_output=True, text=True, check=True)
        for one in commands
    )
    assert ours.stdout == its.stdout != ""
