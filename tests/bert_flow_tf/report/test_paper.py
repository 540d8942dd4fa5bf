"""A score is compared with comparable figures only."""

import importlib.resources
import json

import pytest
from msgspec.structs import replace

from bert_flow_tf.common.records import Training
from bert_flow_tf.report.paper import fine_tuning_of, published_figures, table5
from tests.bert_flow_tf.records import encoder, flow

NLI_SETTINGS = {
    "num_train_epochs": 1.0,
    "learning_rate": 2e-5,
    "train_batch_size": 16,
    "max_seq_length": 64,
}
NLI_SETTINGS |= {"num_examples": -1, "flow": 0, "dupe_factor": 1, "l2_penalty": -1.0}


def nli(task="allnli", pairs=961_725, began_with=None, **settings):
    """The paper's fine-tuning on NLI, but for the changes."""
    return Training(
        task=task, pairs=pairs, settings=NLI_SETTINGS | settings, seed=5, began_with=began_with
    )


BASE, TUNED = encoder("base"), encoder("base", fine_tuning=nli())
LARGE = encoder("large", fine_tuning=nli(pairs=942_069))
NLI_FLOW = {"use_full_for_training": 0, "num_train_epochs": 0.15, "flow_learning_rate": 2e-5}
NLI_FLOW |= {"task": "allnli", "pairs": 961_725}
ON_STS12 = {"task": "sts-12", "pairs": 3 * 3108}
ON_QNLI = {"task": "qnli-regression", "pairs": 115_669}
ON_TRAIN = {"use_full_for_training": 0, "pairs": 5749}
LAST2 = "avg-last-2"


def test_score_meets_its_row_of_the_paper():
    for row, figure, *score in (
        ("BERT-base", 47.29, "STS-B", "test", "avg", None, BASE),
        ("BERT-base-last2avg", 57.84, "STS-12", "test", LAST2, None, BASE),
        ("BERT-base-last2avg", 63.75, "SICK-R", "test", LAST2, None, BASE),
        ("BERT-large-NLI-last2avg", 78.45, "STS-B", "test", LAST2, None, LARGE),
        ("BERT-base-flow (target)", 70.72, "STS-B", "test", LAST2, flow("config_l2_d3_w32"), BASE),
        ("BERT-base-flow (target)", 63.48, "STS-12", "test", LAST2, flow(**ON_STS12), BASE),
        ("BERT-base-flow (NLI)", 59.54, "STS-12", "test", LAST2, flow(**NLI_FLOW), BASE),
        (
            "BERT-large-NLI-flow (target, train only)",
            80.54,
            "STS-B",
            "test",
            LAST2,
            flow(**ON_TRAIN),
            LARGE,
        ),
        ("BERT-base-NLI-flow (target)", 76.17, "QNLI", "dev", LAST2, flow(**ON_QNLI), TUNED),
    ):
        found = published_figures(*score)
        assert (found.row, found.paper, found.original) == (row, figure, ())


def test_published_figures_include_tables_8_and_5():
    assert published_figures("STS-B", "test", LAST2, None, LARGE).seeds == {
        "mean": 78.07,
        "std": 1.5,
        "median": 78.68,
    }
    assert published_figures("STS-B", "test", LAST2, flow(), LARGE).seeds["mean"] == 81.1
    assert published_figures("STS-B", "test", LAST2, flow(), TUNED).seeds is None
    # Table 5 has the flow of either of the paper's configurations.
    flows = [table5("flow", "STS-B", f"config_{name}_w32") for name in ("l2_d3", "l3_d2")]
    assert flows == [("BERT-base-flow (target)", 65.62), None]


def varied(make, **values):
    return [make(**{key: value}) for key, several in values.items() for value in several]


def on_stsb(**change):
    return {
        "task": "STS-B",
        "split": "test",
        "pooling": LAST2,
        "flow": flow(),
        "encoder": TUNED,
    } | change


def learned(**change):
    return on_stsb(flow=flow(**change))


def tuned(**change):
    return on_stsb(encoder=encoder("base", fine_tuning=nli(**change)))


# Each differs in one thing from a score that has a figure.
ONE_THING = [
    *varied(
        tuned,
        task=["mnli"],
        pairs=[9840, None],
        num_train_epochs=[2.0],
        learning_rate=[5e-5],
        flow=[1],
    ),
    *varied(
        tuned,
        train_batch_size=[32],
        num_examples=[500],
        max_seq_length=[128],
        dupe_factor=[2],
        l2_penalty=[0.1],
    ),
    *varied(
        on_stsb, encoder=[encoder(None), encoder("base", fine_tuning=Training())], pooling=["cls"]
    ),
    *varied(on_stsb, split=["dev"], task=["SICK-R", "MRPC"]),
    *varied(
        learned,
        config=["config_l2_d3_w16"],
        task=["sick-r", None],
        pairs=[5749, None],
        num_train_epochs=[2.0],
    ),
    *varied(
        learned,
        use_full_for_training=[0],
        train_batch_size=[16],
        flow_learning_rate=[1e-4],
        num_examples=[500],
    ),
    *varied(
        learned,
        dupe_factor=[None],
        flow_loss=[0],
        flow_ddi=[True],
        l2_penalty=[0.1],
        began_with=[Training()],
    ),
    on_stsb(flow=replace(flow(), training=Training())),
]


def test_score_that_differs_in_one_thing_has_no_figure():
    assert published_figures(**on_stsb()).paper == 81.03
    assert [
        score for score in ONE_THING if published_figures(**score)[1:] != (None, None, ())
    ] == []


DEMO = {"encoder": encoder("demo"), "pooling": "cls"}


def test_tf1_scores_exist_only_for_the_demo_encoder():
    for mean, runs, change in (
        (73.0831, 1, {"flow": None}),
        # With the initialisation hooked in, this seed gave 78.3984; with dropout off, 78.6351.
        ((78.4632 + 78.5091) / 2, 2, {}),
        (78.5181, 1, {"flow": flow("config_l2_d3_w32")}),
        (80.32256, 5, {"pooling": LAST2}),
        (0, 0, {"encoder": encoder("demo", fine_tuning=nli())}),
        (0, 0, {"pooling": "avg-last-3"}),
        (0, 0, {"task": "SICK-R"}),
        (0, 0, {"flow": flow("config_l3_d2_w32")}),
        (0, 0, {"flow": flow(flow_ddi=True)}),
        (0, 0, {"flow": flow(**ON_TRAIN)}),
    ):
        found = published_figures(**on_stsb(**DEMO) | change).original
        assert (len(found), sum(found)) == (runs, pytest.approx(runs * mean, abs=1e-5)), change


def test_fine_tuning_is_the_papers_another_or_unknown():
    masked = Training(settings={"objective": "masked language model"})
    for words, training in (
        *((None, None), ("unknown", Training()), ("NLI", nli()), ("masked language model", masked)),
        *(("other", nli(task="sts-b")), ("other", nli(pairs=3))),
    ):
        assert fine_tuning_of(encoder("base", fine_tuning=training)) == words


def test_every_run_of_the_original_is_the_references(reference_data):
    reference = json.loads((reference_data / "reference" / "tf1_runs.json").read_text())[
        "sts_b_test"
    ]
    paper = importlib.resources.files("bert_flow_tf.report").joinpath("paper.json")
    runs = json.loads(paper.read_text("utf-8"))["original"]["runs"]
    assert len(runs) == len(reference) == 17
    for ours, theirs in zip(runs, reference, strict=True):
        config = theirs.get("flow_model_config", "config_l3_d3_w32") if theirs["flow"] else None
        assert (ours["sentence_embedding_type"], ours["flow_model_config"]) == (
            theirs["embedding"],
            config,
        )
        assert [ours[key] for key in ("seed", "pearson", "spearman")] == [
            theirs.get(key) for key in ("seed", "pearson", "spearman")
        ]
        assert (ours["changed"] is None) == (
            "note" not in theirs or "the same command" in theirs["note"]
        )
