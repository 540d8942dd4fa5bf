"""A row meets its baseline, the paper's row and the TF1 code's run, and nothing that is not comparable."""

import pathlib

import pytest

from bert_flow_tf.evaluation import report_analyses
from bert_flow_tf.evaluation.report_comparisons import (
    compared,
    compared_calibration,
    original_of,
    paper_figure,
    paper_seeds,
)
from bert_flow_tf.evaluation.report_rows import Row
from bert_flow_tf.evaluation.report_settings import Encoder, Flow
from bert_flow_tf.evaluation.report_sources import find_sources
from tests.bert_flow_tf.evaluation import result_files as files

FLAGS = {
    "num_examples": 0,
    "num_train_epochs": 1.0,
    "train_batch_size": 32,
    "flow_learning_rate": 1e-3,
    "use_full_for_training": 1,
    "dupe_factor": 1,
    "flow_loss": 1,
    "flow_ddi": False,
    "l2_penalty": -1.0,
}


def encoder(name="base", fine_tuning=None, weights=None):
    return Encoder(name, name or "/my/encoder", files.DEMO, fine_tuning, weights or f"{name} {fine_tuning}")


def flow(config="config_l3_d3_w32", learned_on="STS-B", begun=False, pairs=8628, **flags):
    return Flow(config, learned_on, FLAGS | flags, begun, pairs)


def row(**changes):
    fields = {
        "source": "run",
        "name": "run",
        "folder": pathlib.Path("/runs"),
        "encoder": encoder(),
        "pooling": "avg-last-2",
        "max_seq_length": 64,
        "low_dim": None,
        "flow": None,
        "seeds": [],
        "task": "STS-B",
        "split": "test",
        "metric": "spearman",
        "protocol": None,
        "pairs": 1379,
        "values_x100": [70.0],
    }
    return Row(**(fields | changes))


STS12 = {"task": "STS-12", "protocol": "wmean", "pairs": 3108}
ON_STS12 = {"learned_on": "STS-12", "pairs": 3 * 3108}
NLI_FLOW = {
    "learned_on": "ALLNLI",
    "pairs": 961_725,
    "use_full_for_training": 0,
    "num_train_epochs": 0.15,
    "flow_learning_rate": 2e-5,
}


@pytest.mark.parametrize(
    ("changes", "name", "figure"),
    [
        ({"pooling": "avg"}, "BERT-base", 47.29),
        ({}, "BERT-base-last2avg", 59.04),
        ({"pooling": "avg", **STS12}, "BERT-base", 49.07),
        (STS12, "BERT-base-last2avg", 57.84),
        ({"task": "SICK-R", "pairs": 4927}, "BERT-base-last2avg", 63.75),
        ({"task": "STS-13", "protocol": "wmean", "pairs": 1500}, "BERT-base-last2avg", 61.95),
        ({"encoder": encoder("large", "NLI")}, "BERT-large-NLI-last2avg", 78.45),
        ({"flow": flow()}, "BERT-base-flow (target)", 70.72),
        ({"flow": flow("config_l2_d3_w32")}, "BERT-base-flow (target)", 70.72),
        ({"flow": flow(**ON_STS12), **STS12}, "BERT-base-flow (target)", 63.48),
        ({"flow": flow(**NLI_FLOW), **STS12}, "BERT-base-flow (NLI)", 59.54),
        ({"flow": flow(**NLI_FLOW), "encoder": encoder("large", "NLI")}, "BERT-large-NLI-flow (NLI)", 79.89),
        (
            {"flow": flow(use_full_for_training=0, pairs=5749), "encoder": encoder("large", "NLI")},
            "BERT-large-NLI-flow (target, train only)",
            80.54,
        ),
        (
            {
                "encoder": encoder("base", "NLI"),
                "task": "QNLI",
                "split": "dev",
                "metric": "auc",
                "pairs": 5463,
                "flow": flow(learned_on="QNLI-regression", pairs=115_669),
            },
            "BERT-base-NLI-flow (target)",
            76.17,
        ),
    ],
)
def test_a_row_of_the_paper_is_met_by_the_same_encoder_training_and_protocol(changes, name, figure):
    found = paper_figure(row(**changes))
    assert (found["row"], found["mean_x100"]) == (name, figure)
    assert found["source"] == ("README of the original" if "train only" in name else "paper")


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": encoder("demo")},
        {"encoder": encoder(None)},
        {"encoder": encoder("base", "other")},
        {"encoder": encoder("base", "unknown")},
        {"pooling": "cls"},
        {"max_seq_length": 128},
        {"low_dim": 64},
        {"split": "dev"},
        {"metric": "auc"},
        # Other pairs than the paper's, such as sample data, or no telling which.
        {"pairs": 100},
        {"pairs": None},
        {**STS12, "protocol": "mean"},
        {**STS12, "protocol": "all"},
        {"task": "MRPC", "pairs": 1725},
        {"task": "tfds:glue/stsb", "split": "validation", "pairs": 1500},
        {"flow": flow("config_l2_d3_w16")},
        {"flow": flow(None)},
        {"flow": flow(**ON_STS12)},
        {"flow": flow(learned_on=None)},
        {"flow": flow(flow_ddi=True)},
        {"flow": flow(num_train_epochs=2.0)},
        {"flow": flow(num_examples=500)},
        {"flow": flow(l2_penalty=0.1)},
        {"flow": flow(dupe_factor=None)},
        {"flow": flow(begun=True)},
        {"flow": Flow("config_l3_d3_w32", "STS-B", None)},
        # Learned on other pairs than the paper's, or no telling on how many.
        {"flow": flow(pairs=100)},
        {"flow": flow(use_full_for_training=0)},
        {"flow": flow(pairs=5749)},
        {"flow": flow(pairs=None)},
        {"flow": flow(**(NLI_FLOW | {"pairs": 9840}))},
        {"flow": flow(), "pooling": "avg"},
        {"flow": flow(**(NLI_FLOW | {"num_train_epochs": 1.0}))},
    ],
)
def test_what_differs_from_the_papers_way_has_no_row(changes):
    assert paper_figure(row(**changes)) is None


def test_several_seeds_on_nli_meet_table_8():
    several = {"encoder": encoder("large", "NLI"), "values_x100": [80.0, 82.0], "seeds": [1, 2]}
    assert paper_seeds(row(**several)) == {
        "row": "BERT-large-NLI-last2avg",
        "mean_x100": 78.07,
        "std_x100": 1.5,
        "median_x100": 78.68,
    }
    assert paper_seeds(row(**several, flow=flow()))["mean_x100"] == 81.1
    assert paper_seeds(row(**(several | {"encoder": encoder("base", "NLI")}))) is None
    assert paper_seeds(row(**(several | {"values_x100": [80.0]}))) is None
    assert paper_seeds(row(**several, flow=flow(use_full_for_training=0))) is None


DEMO = {"encoder": encoder("demo"), "pooling": "cls"}


@pytest.mark.parametrize(
    ("changes", "figure", "seeds"),
    [
        ({}, 73.08, []),
        ({"pooling": "avg"}, 82.03, []),
        ({"flow": flow(), "seeds": [1234]}, 78.46, [1234]),
        ({"flow": flow(learned_on="sts-b"), "seeds": [1]}, 78.49, [1234, 2]),
        ({"flow": flow("config_l2_d3_w32"), "seeds": [1234]}, 78.52, [1234]),
        ({"flow": flow(), "pooling": "avg-last-2", "seeds": [1, 2]}, 80.57, [1234]),
    ],
)
def test_the_tf1_code_is_met_on_the_demo_encoders_weights(changes, figure, seeds):
    found = original_of(row(**(DEMO | changes)))
    assert round(found["mean_x100"], 2) == figure
    assert found["seeds"] == seeds


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder": encoder("base")},
        {"encoder": encoder("demo", "NLI")},
        {"encoder": encoder("demo", "unknown")},
        {"pooling": "avg-last-3"},
        {"split": "dev", "pairs": 1500},
        {"pairs": 60},
        {"max_seq_length": 128},
        {"flow": flow("config_l3_d2_w32")},
        {"flow": flow(None)},
        {"flow": flow(flow_ddi=True)},
        {"flow": flow(use_full_for_training=0)},
        {"flow": flow(flow_learning_rate=1e-4)},
        {"flow": flow(learned_on="ALLNLI")},
        {"flow": flow(begun=True)},
        {"task": "SICK-R", "pairs": 4927},
    ],
)
def test_what_the_tf1_code_was_not_run_on_stays_empty(changes):
    assert original_of(row(**(DEMO | changes))) is None


def test_the_baseline_is_the_same_without_a_flow_and_the_difference_goes_from_it():
    plain = row(**DEMO, name="plain", values_x100=[73.0])
    others = [
        row(**(DEMO | {"pooling": "avg"})),
        row(encoder=encoder("demo", "NLI"), pooling="cls"),
        row(**DEMO, task="SICK-R", pairs=4927),
        row(**DEMO, pairs=60),
        row(**DEMO, max_seq_length=128),
    ]
    with_flow = row(**DEMO, flow=flow(), seeds=[1234, 2], values_x100=[78.0, 79.0])
    *_, first = compared([*others, with_flow])
    assert (first["baseline"], first["difference_from_baseline_x100"]) == (None, None)
    *_, baseline, last = compared([*others, plain, with_flow])
    assert last["baseline"]["name"] == "plain"
    assert last["difference_from_baseline_x100"] == pytest.approx(5.5)
    assert baseline["baseline"] is None
    assert last["difference_from_original_x100"] == pytest.approx(78.5 - (78.4632 + 78.5091) / 2)


def test_of_two_baselines_that_in_the_same_folder_counts():
    far = row(**DEMO, name="far", folder=pathlib.Path("/other"))
    near = row(**DEMO, name="near")
    *_, last = compared([far, near, row(**DEMO, flow=flow())])
    assert last["baseline"]["name"] == "near"
    *_, last = compared([far, row(**DEMO, flow=flow())])
    assert last["baseline"]["name"] == "far"


def calibrated(tmp_path, **changes):
    (source,), _ = find_sources([files.write_json(tmp_path / "c.json", files.calibration(**changes))])
    record = compared_calibration(report_analyses.calibration(source))
    return {one["method"]: one for one in record["rows"]}


def test_calibrations_of_the_demo_encoder_meet_the_tf1_code_and_stand_beside_table_5(tmp_path):
    rows = calibrated(tmp_path)
    assert rows["none"]["original"]["mean_x100"] == pytest.approx(73.0831)
    assert rows["flow"]["original"]["mean_x100"] == pytest.approx(78.48615)
    assert rows["whitening"]["original"] is None and rows["whitening"]["paper"] is None
    assert rows["sn+natsv"]["paper"] == {"row": "+ SN + NATSV (k=6)", "mean_x100": 63.51}
    assert [one["difference_from_paper_x100"] for one in rows.values()] == [None] * 4
    assert rows["none"]["difference_from_none_x100"] is None
    assert rows["flow"]["difference_from_none_x100"] == pytest.approx(78.5 - 73.08)
    assert (rows["flow"]["n"], rows["flow"]["seeds"], rows["flow"]["std_x100"]) == (2, [1, 2], pytest.approx(0.1414))


def test_a_flow_of_another_architecture_or_other_pairs_do_not_stand_beside_table_5(tmp_path):
    rows = calibrated(tmp_path, config="config_l3_d2_w32")
    assert rows["flow"]["paper"] is None and rows["none"]["paper"]["mean_x100"] == 47.29
    rows = calibrated(tmp_path, test_pairs=60)
    assert {one["paper"] and one["paper"]["row"] for one in rows.values()} == {None}


def test_calibrations_of_the_papers_encoder_differ_from_table_5(tmp_path):
    rows = calibrated(tmp_path, model=files.model_record(handle="base", pooling="avg"))
    assert rows["none"]["difference_from_paper_x100"] == pytest.approx(73.08 - 47.29)
    assert rows["whitening"]["difference_from_paper_x100"] is None
    assert {one["original"] for one in rows.values()} == {None}


@pytest.mark.parametrize(
    "changes",
    [{"test_pairs": 60}, {"fit_on": "train"}, {"model": files.model_record(length=128)}, {"task": "sick-r"}],
)
def test_calibrations_of_something_else_meet_nothing(tmp_path, changes):
    rows = calibrated(tmp_path, **changes)
    assert {one["original"] for one in rows.values()} == {None}


def test_a_flow_of_another_configuration_is_not_the_tf1_codes(tmp_path):
    rows = calibrated(tmp_path, config="config_l3_d2_w32")
    assert rows["flow"]["original"] is None and rows["none"]["original"] is not None
