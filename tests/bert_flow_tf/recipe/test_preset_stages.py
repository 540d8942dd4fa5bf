"""The rows of the paper's tables as stages."""

import dataclasses

import pytest

from bert_flow_tf.paper.presets import PRESETS
from bert_flow_tf.recipe.environment import read_environment
from bert_flow_tf.recipe.stages import Target, stages_of, stages_of_presets
from tests.bert_flow_tf.recipe.workplace import Workplace


@pytest.fixture
def recipe(tmp_path):
    return read_environment({**Workplace(tmp_path).environ, "SKIP_NLI": "1"})


def flags(stage):
    return dict(flag.removeprefix("--").split("=", 1) for flag in stage.flags)


def test_every_row_trains_what_the_paper_says(recipe):
    stages, scored = stages_of_presets(recipe, list(PRESETS.values()))
    assert list(scored) == ["avg", "last2avg", "flow-target", "flow-train", "flow-nli"]
    learned = [flags(stage) for stage in stages if "do_train" in flags(stage)]
    names = ("task_name", "use_full_for_training", "num_train_epochs", "flow_learning_rate", "sentence_embedding_type")
    assert [tuple(values[name] for name in names) for values in learned] == [
        ("STS-B", "1", "1.0", "1e-3", "avg-last-2"),
        ("STS-B", "0", "1.0", "1e-3", "avg-last-2"),
        ("ALLNLI", "0", "0.15", "2e-5", "avg-last-2"),
    ]
    assert len({values["exp_name"] for values in learned}) == 3
    for preset, made in scored.items():
        values = flags(made.scored)
        assert (values["task_name"], values["do_predict"]) == ("STS-B", "true")
        assert values["sentence_embedding_type"] == ("avg" if preset == "avg" else "avg-last-2")
    for name in ("flow-target", "flow-train"):
        assert flags(scored[name].scored)["exp_name"] == flags(scored[name].learned)["exp_name"]
    assert scored["avg"].learned is None


def test_a_flow_on_nli_is_learned_once_and_scored_on_every_task(recipe, tmp_path):
    (tmp_path / "SICK-R").mkdir()
    other = dataclasses.replace(recipe, target=Target("SICK-R", tmp_path / "SICK-R"))
    made = [stages_of_presets(one, [PRESETS["flow-nli"]])[1]["flow-nli"] for one in (recipe, other)]
    assert made[0].learned == made[1].learned
    assert [one.scored.begins_with for one in made] == [made[0].learned.run_dir] * 2
    assert len({one.scored.run_dir for one in made} | {made[0].learned.run_dir}) == 3


def test_qnli_is_predicted_on_dev(recipe, tmp_path):
    (tmp_path / "QNLI-Regression").mkdir()
    target = Target("QNLI-Regression", tmp_path / "QNLI-Regression", "dev")
    _, made = stages_of_presets(dataclasses.replace(recipe, target=target), [PRESETS["avg"]])
    stage = made["avg"].scored
    assert flags(stage)["do_predict_on_dev"] == "true" and stage.prediction_path.name == "dev_results.tsv"


def test_rows_that_the_recipe_has_too_are_its_stages(recipe):
    ours = {stage.name: stage for stage in stages_of_presets(recipe, [PRESETS["avg"], PRESETS["flow-target"]])[0]}
    theirs = {stage.name: stage for stage in stages_of(recipe)}
    for name, stage in ours.items():
        assert (stage.flags, stage.settings) == (theirs[name].flags, theirs[name].settings)


def test_a_flow_on_nli_depends_on_the_nli_data_and_its_score_on_the_targets_too(recipe):
    stages, scored = stages_of_presets(recipe, [PRESETS["flow-nli"]])
    assert {"data of MNLI", "data of SNLI"} <= stages[0].settings.keys()
    assert "data" not in stages[0].settings
    assert {"data of MNLI", "data"} <= scored["flow-nli"].scored.settings.keys()
