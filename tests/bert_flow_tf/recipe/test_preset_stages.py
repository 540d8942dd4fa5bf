"""The rows of the paper's tables as stages."""

import pytest

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.paper.figures import PRESETS
from bert_flow_tf.recipe.run import read_environment, recipe_stages
from tests.bert_flow_tf.recipe.workplace import Workplace


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    return read_environment({**Workplace(tmp_path, monkeypatch).environ, "SKIP_NLI": "1"})


def test_every_row_trains_what_the_paper_says(recipe):
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


def test_a_flow_on_nli_is_learned_once_and_scored_on_every_task(recipe, tmp_path):
    other = recipe._replace(folder=tmp_path / "SICK-R", task=None)
    made = [one.preset(PRESETS["flow-nli"]) for one in (recipe, other)]
    assert made[0][0] == made[1][0]
    learned = made[0][0].settings.output_dir
    assert [scored.settings.init_checkpoint for _, scored in made] == [str(learned)] * 2
    assert len({scored.settings.output_dir for _, scored in made} | {learned}) == 3


def test_qnli_is_predicted_on_dev(recipe, tmp_path):
    task = SimilarityTask("qnli", "QNLI", "auc", "dev", "x", [])
    (scored,) = recipe._replace(folder=tmp_path / "QNLI-Regression", task=task).preset(PRESETS["avg"])
    assert scored.settings.prediction_path.name == "dev_results.tsv"


def test_rows_that_the_recipe_has_too_are_its_runs(recipe):
    ours = [stage.settings for name in ("avg", "flow-target") for stage in recipe.preset(PRESETS[name])]
    assert {*ours} <= {stage.settings for stage in recipe_stages(recipe)}
