"""The rows of the paper's tables as stages."""

import dataclasses

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.paper import paper_tables
from bert_flow_tf.evaluation.presets import PRESETS, get_presets, paper_row, stages_of_presets, summarize
from bert_flow_tf.recipe import read_environment
from bert_flow_tf.recipe_stages import Target, stages_of
from tests.bert_flow_tf.test_recipe import Workplace


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
    made = [stages_of_presets(one, get_presets(["flow-nli"]))[1]["flow-nli"] for one in (recipe, other)]
    assert made[0].learned == made[1].learned
    assert [one.scored.begins_with for one in made] == [made[0].learned.run_dir] * 2
    assert len({one.scored.run_dir for one in made} | {made[0].learned.run_dir}) == 3


def test_qnli_is_predicted_on_dev(recipe, tmp_path):
    (tmp_path / "QNLI-Regression").mkdir()
    target = Target("QNLI-Regression", tmp_path / "QNLI-Regression", "dev")
    _, made = stages_of_presets(dataclasses.replace(recipe, target=target), get_presets(["avg"]))
    stage = made["avg"].scored
    assert flags(stage)["do_predict_on_dev"] == "true" and stage.prediction_path.name == "dev_results.tsv"


def test_rows_that_the_recipe_has_too_are_its_stages(recipe):
    ours = {stage.name: stage for stage in stages_of_presets(recipe, get_presets(["avg", "flow-target"]))[0]}
    theirs = {stage.name: stage for stage in stages_of(recipe)}
    for name, stage in ours.items():
        assert (stage.flags, stage.settings) == (theirs[name].flags, theirs[name].settings)


def test_a_flow_on_nli_depends_on_the_nli_data_and_its_score_on_the_targets_too(recipe):
    stages, scored = stages_of_presets(recipe, get_presets(["flow-nli"]))
    assert {"data of MNLI", "data of SNLI"} <= stages[0].settings.keys()
    assert "data" not in stages[0].settings
    assert {"data of MNLI", "data"} <= scored["flow-nli"].scored.settings.keys()


@pytest.mark.parametrize(
    ("names", "message"),
    [(["flow"], "found flow, expected some of avg, last2avg"), ([], "found none"), (["avg", "avg"], "found avg twice")],
)
def test_other_rows_are_refused(names, message):
    with pytest.raises(UserError, match=f"--rows: {message}"):
        get_presets(names)


def test_seeds_are_told_as_in_table_8():
    summary = summarize([0.1, 0.4, 0.2])
    assert summary["mean"] == pytest.approx(0.7 / 3)
    assert summary["std"] == pytest.approx(0.152752523)
    assert (summary["median"], summary["values"]) == (0.2, [0.1, 0.4, 0.2])
    assert summarize([0.5])["std"] is None


@pytest.mark.parametrize(
    ("preset", "encoder", "with_nli", "task", "figure"),
    [
        ("avg", "base", False, "STS-B", 47.29),
        ("flow-target", "base", False, "STS-12", 63.48),
        ("flow-nli", "large", False, "STS-B", 68.09),
        ("flow-train", "large", True, "STS-B", 80.54),
        ("flow-train", "base", False, "STS-B", None),
        ("avg", "demo", False, "STS-B", None),
        ("avg", "large-wwm", False, "STS-B", None),
        ("avg", "base", False, "QNLI-Regression", None),
    ],
)
def test_the_papers_figure_is_there_for_its_encoders_only(preset, encoder, with_nli, task, figure):
    row = paper_row(PRESETS[preset], encoder, with_nli, task, paper_tables())
    assert (row and row["spearman_x100"]) == figure
