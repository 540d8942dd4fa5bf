"""A row meets its baseline, the paper's row and the TF1 code's run, and nothing that is not comparable."""

import pathlib

import pytest
from msgspec.structs import replace

from bert_flow_tf.results.collect import collect
from bert_flow_tf.results.comparisons import (
    compared,
    fine_tuning_of,
    original_of,
    paper_figure,
    paper_seeds,
)
from bert_flow_tf.results.rows import Row
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.runs.record import Training
from tests.bert_flow_tf import records
from tests.bert_flow_tf.records import encoder, flow
from tests.bert_flow_tf.results import written

NLI_SETTINGS = {
    "num_train_epochs": 1.0,
    "learning_rate": 2e-5,
    "train_batch_size": 16,
    "num_examples": -1,
    "max_seq_length": 64,
    "flow": 0,
    "dupe_factor": 1,
    "l2_penalty": -1.0,
    "sentence_embedding_type": "avg",
}


def nli(task="allnli", pairs=961_725, began_with=None, **settings):
    """The paper's fine-tuning on NLI, but for the changes."""
    return Training(task=task, pairs=pairs, settings=NLI_SETTINGS | settings, seed=5, began_with=began_with)


def row(encoder=None, pooling="avg-last-2", max_seq_length=64, low_dim=None, flow=None, **changes):
    """A row of the paper's encoder on all of the STS Benchmark, but for the changes."""
    model = records.model(
        encoder=encoder or records.encoder("base"),
        pooling=pooling,
        max_seq_length=max_seq_length,
        low_dim=low_dim,
        flow=flow,
    )
    fields = {
        "source": "run",
        "name": "run",
        "folder": pathlib.Path("/runs"),
        "model": model,
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
ON_STS12 = {"task": "sts-12", "pairs": 3 * 3108}
QNLI = {"task": "QNLI", "split": "dev", "metric": "auc", "pairs": 5463}
NLI_FLOW = {
    "task": "allnli",
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
        (STS12, "BERT-base-last2avg", 57.84),
        ({"task": "SICK-R", "pairs": 4927}, "BERT-base-last2avg", 63.75),
        ({"encoder": encoder("large", fine_tuning=nli())}, "BERT-large-NLI-last2avg", 78.45),
        ({"flow": flow()}, "BERT-base-flow (target)", 70.72),
        ({"flow": flow("config_l2_d3_w32")}, "BERT-base-flow (target)", 70.72),
        ({"flow": flow(**ON_STS12), **STS12}, "BERT-base-flow (target)", 63.48),
        ({"flow": flow(**NLI_FLOW), **STS12}, "BERT-base-flow (NLI)", 59.54),
        (
            {
                "flow": flow(use_full_for_training=0, pairs=5749),
                "encoder": encoder("large", fine_tuning=nli(pairs=942_069)),
            },
            "BERT-large-NLI-flow (target, train only)",
            80.54,
        ),
        (
            {
                "encoder": encoder("base", fine_tuning=nli()),
                "flow": flow(task="qnli-regression", pairs=115_669),
                **QNLI,
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


def varied(make=dict, **values):
    """What `make` gives with one value for one key, for every one of them."""
    return [make(**{key: value}) for key, several in values.items() for value in several]


def learned(**change):
    return {"flow": flow(**change)}


def tuned(name="base", **change):
    return {"encoder": encoder(name, fine_tuning=nli(**change))}


TUNED = encoder("base", fine_tuning=nli())
# Each differs in one thing from a row that has a figure: that of the flow on the target over the fine-tuned encoder.
ONE_THING = [
    *(tuned("demo"), tuned(None), {"encoder": encoder("base", fine_tuning=Training())}),
    *varied(tuned, task=["mnli"], pairs=[9840, None], num_train_epochs=[2.0], learning_rate=[5e-5], flow=[1]),
    *varied(tuned, train_batch_size=[32], num_examples=[500], max_seq_length=[128], sentence_embedding_type=["cls"]),
    *varied(tuned, dupe_factor=[2], l2_penalty=[0.1], began_with=[nli()]),
    *varied(pooling=["cls"], max_seq_length=[128], low_dim=[64], split=["dev"], metric=["auc"], protocol=["all"]),
    *varied(pairs=[100], task=["SICK-R"]),
    {"task": "MRPC", "pairs": 1725},
    *varied(learned, config=["config_l2_d3_w16"], task=["sick-r", None], pairs=[5749, None], num_train_epochs=[2.0]),
    *varied(learned, use_full_for_training=[0], train_batch_size=[16], flow_learning_rate=[1e-4], num_examples=[500]),
    *varied(learned, dupe_factor=[None], flow_loss=[0], flow_ddi=[True], l2_penalty=[0.1, None]),
    learned(began_with=Training()),
    {"flow": replace(flow(), training=Training())},
]


@pytest.mark.parametrize("change", ONE_THING)
def test_a_row_that_differs_in_one_thing_has_no_figure_of_the_paper(change):
    comparable = {"encoder": TUNED, "flow": flow()}
    assert paper_figure(row(**comparable))["mean_x100"] == 81.03
    assert paper_figure(row(**(comparable | change))) is None


def test_a_seed_is_no_difference():
    assert paper_figure(row(encoder=TUNED, flow=flow(seed=9)))["mean_x100"] == 81.03
    assert paper_figure(row(**STS12, encoder=TUNED)) is not None
    assert paper_figure(row(**(STS12 | {"protocol": "mean"}), encoder=TUNED)) is None
    assert paper_figure(row(**(STS12 | {"protocol": None}), encoder=TUNED)) is None
    qnli = {"encoder": TUNED, "flow": flow(task="qnli-regression", pairs=115_669), **QNLI}
    assert paper_figure(row(**qnli)) is not None
    assert [paper_figure(row(**(qnli | {key: "test"}))) for key in ("split", "metric")] == [None, None]


def test_a_flow_on_nli_is_not_that_on_the_target():
    assert paper_figure(row(flow=flow(**(NLI_FLOW | {"num_train_epochs": 1.0})))) is None
    assert paper_figure(row(flow=flow(**(NLI_FLOW | {"pairs": 9840})))) is None


@pytest.mark.parametrize(
    ("training", "words"),
    [
        *((None, None), (Training(), "unknown"), (nli(), "NLI"), (nli(task="sts-b"), "other"), (nli(pairs=3), "other")),
        (Training(settings={"objective": "masked language model"}), "masked language model"),
    ],
)
def test_fine_tuning_is_the_papers_another_or_not_known(training, words):
    assert fine_tuning_of(encoder("base", fine_tuning=training)) == words


def test_several_seeds_on_nli_meet_table_8():
    large = encoder("large", fine_tuning=nli())
    several = {"encoder": large, "values_x100": [80.0, 82.0], "seeds": [1, 2]}
    assert paper_seeds(row(**several)) == {
        "row": "BERT-large-NLI-last2avg",
        "mean_x100": 78.07,
        "std_x100": 1.5,
        "median_x100": 78.68,
    }
    assert paper_seeds(row(**several, flow=flow()))["mean_x100"] == 81.1
    assert paper_seeds(row(**(several | {"encoder": TUNED}))) is None
    assert paper_seeds(row(**(several | {"values_x100": [80.0]}))) is None
    assert paper_seeds(row(**several, flow=flow(use_full_for_training=0))) is None


DEMO = {"encoder": encoder("demo"), "pooling": "cls"}


@pytest.mark.parametrize(
    ("changes", "figure", "seeds"),
    [
        ({}, 73.08, []),
        ({"pooling": "avg"}, 82.03, []),
        ({"flow": flow(), "seeds": [1234]}, 78.46, [1234]),
        ({"flow": flow(), "seeds": [1]}, 78.49, [1234, 2]),
        ({"flow": flow("config_l2_d3_w32"), "seeds": [1234]}, 78.52, [1234]),
        ({"flow": flow(), "pooling": "avg-last-2", "seeds": [1, 2]}, 80.32, [1234, 1234, 1, 2, 3]),
    ],
)
def test_the_tf1_code_is_met_on_the_demo_encoders_weights(changes, figure, seeds):
    found = original_of(row(**(DEMO | changes)))
    assert round(found["mean_x100"], 2) == figure
    assert found["seeds"] == seeds


@pytest.mark.parametrize(
    "change",
    [
        *varied(encoder=[encoder("base"), *(encoder("demo", fine_tuning=one) for one in (nli(), Training()))]),
        *varied(pooling=["avg-last-3"], split=["dev"], metric=["auc"], task=["SICK-R"], pairs=[60]),
        *varied(max_seq_length=[128], low_dim=[64]),
        *varied(learned, config=["config_l3_d2_w32"], flow_ddi=[True], use_full_for_training=[0], pairs=[5749]),
        *varied(learned, flow_learning_rate=[1e-4], task=["allnli"], began_with=[Training()]),
    ],
)
def test_what_differs_from_the_tf1_codes_runs_in_one_thing_stays_empty(change):
    assert original_of(row(**(DEMO | {"flow": flow()}))) is not None
    assert original_of(row(**(DEMO | {"flow": flow()} | change))) is None


@pytest.mark.parametrize(
    "change",
    [
        *(tuned("demo"), learned()),
        *varied(pooling=["avg"], task=["SICK-R"], split=["dev"], metric=["auc"], protocol=["all"], pairs=[60]),
        *varied(max_seq_length=[128], low_dim=[4]),
    ],
)
def test_the_baseline_is_the_same_without_a_flow(change):
    with_flow = row(**DEMO, flow=flow(), seeds=[1234, 2], values_x100=[78.0, 79.0])
    plain = row(**DEMO, name="plain", values_x100=[73.0])
    *_, last = compared([row(**(DEMO | change)), with_flow])
    assert (last["baseline"], last["difference_from_baseline_x100"]) == (None, None)
    *_, baseline, last = compared([row(**(DEMO | change)), plain, with_flow])
    assert last["baseline"]["name"] == "plain"
    assert last["difference_from_baseline_x100"] == pytest.approx(5.5)
    assert baseline["baseline"] is None
    assert last["difference_from_original_x100"] == pytest.approx(78.5 - (78.4632 + 78.5091) / 2)


def test_an_encoder_is_the_same_before_and_after_it_was_converted():
    trained = encoder("demo", fine_tuning=nli(), weights="index")
    converted = replace(trained, fingerprint="f" * 64)
    exported = replace(converted, weights="f" * 64)
    for one, other, same in ((trained, converted, True), (converted, exported, True), (trained, exported, False)):
        *_, last = compared([row(encoder=one, name="plain"), row(encoder=other, flow=flow())])
        assert (last["baseline"] is not None) == same
    # Of a run that has not trained yet nothing is known.
    unknown = replace(trained, weights=None)
    *_, last = compared([row(encoder=unknown), row(encoder=unknown, flow=flow())])
    assert last["baseline"] is None


def test_a_mean_over_fine_tuned_encoders_is_the_baseline_of_the_same_ones_alone():
    tuned = {"encoder": encoder("demo", fine_tuning=nli())}
    for seeds, other, same in (
        ([1], [1, 2], False),
        ([1, 2], [1], False),
        ([1, 2], [3, 4], False),
        ([1, 2], [1, 2], True),
        ([1], [7], True),
    ):
        plain = row(**tuned, seeds=seeds, values_x100=[80.0] * len(seeds))
        *_, last = compared([plain, row(**tuned, flow=flow(), seeds=other, values_x100=[81.0] * len(other))])
        assert (last["baseline"] is not None) == same


def test_of_two_baselines_that_in_the_same_folder_counts():
    far = row(**DEMO, name="far", folder=pathlib.Path("/other"))
    near = row(**DEMO, name="near")
    for rows, name in (([far, near], "near"), ([far], "far")):
        *_, last = compared([*rows, row(**DEMO, flow=flow())])
        assert last["baseline"]["name"] == name


def test_without_another_baseline_it_is_the_runs_own_before_the_flow(tmp_path):
    by_protocol = {"wmean": 0.7, "all": 0.72}
    after = {"sts12": written.task_scores("STS-12", by_protocol), "stsb": written.task_scores(score=0.78)}
    before = {"sts12": written.task_scores("STS-12", {"wmean": 0.6, "all": 0.65})}
    scored = replace(written.scores(written.CLS_FLOW, **after), without_flow=before)
    run = written.write_run(tmp_path / "run")
    written.write(run / "evaluation.json", scored)
    scores = collect(find_sources([run])[0], "Results")["scores"]
    found = [(one["task"], one["protocol"], one["difference_from_baseline_x100"]) for one in scores]
    assert found == [("STS-12", "wmean", pytest.approx(10)), ("STS-12", "all", pytest.approx(7)), ("STS-B", None, None)]
    assert scores[0]["baseline"]["name"] == "run, before the flow"
    other = written.write(
        tmp_path / "demo.json", written.scores(sts12=written.task_scores("STS-12", {"wmean": 0.69, "all": 0.5}))
    )
    baseline = collect(find_sources([run, other])[0], "Results")["scores"][0]["baseline"]
    assert (baseline["name"], baseline["mean_x100"]) == ("demo.json", pytest.approx(69))


def calibrated(tmp_path, *model, **changes):
    path = written.write(tmp_path / "c.json", written.calibrations(*model, **changes))
    (record,) = collect(find_sources([path])[0], "Results")["calibrations"]
    return {one["method"]: one for one in record["rows"]}


def test_calibrations_of_the_demo_encoder_meet_the_tf1_code_and_stand_beside_table_5(tmp_path):
    rows = calibrated(tmp_path)
    assert rows["none"]["original"]["mean_x100"] == pytest.approx(73.0831)
    assert rows["flow"]["original"]["mean_x100"] == pytest.approx(78.48615)
    assert rows["whitening"]["original"] is None and rows["whitening"]["paper"] is None
    assert rows["sn+natsv"]["paper"] == {"row": "+ SN + NATSV (k=6)", "mean_x100": 63.51}
    assert [one["difference_from_paper_x100"] for one in rows.values()] == [None] * 4
    assert rows["none"]["difference_from_none_x100"] is None
    assert rows["flow"]["difference_from_none_x100"] == pytest.approx(78.45 - 73.08)
    assert (rows["flow"]["n"], rows["flow"]["seeds"]) == (2, [1, 2])
    assert rows["flow"]["std_x100"] == pytest.approx(0.1 / 2**0.5)


def test_calibrations_of_the_papers_encoder_differ_from_table_5(tmp_path):
    papers = records.model(encoder=encoder("base"), pooling="avg")
    rows = calibrated(tmp_path, papers)
    assert rows["none"]["difference_from_paper_x100"] == pytest.approx(73.08 - 47.29)
    assert rows["whitening"]["difference_from_paper_x100"] is None
    assert {one["original"] for one in rows.values()} == {None}
    for change in ({"pooling": "cls"}, {"max_seq_length": 128}, {"encoder": TUNED}):
        rows = calibrated(tmp_path, replace(papers, **change))
        assert rows["none"]["difference_from_paper_x100"] is None


@pytest.mark.parametrize(
    ("changes", "paper", "original"),
    [
        ({"test_pairs": 60}, [], []),
        ({"fit_on": "train"}, [], []),
        ({"task": "sick-r"}, [], []),
        ({"config": "config_l3_d2_w32"}, ["none", "sn+natsv"], ["none"]),
        ({"model": replace(written.CLS, max_seq_length=128)}, ["none", "sn+natsv", "flow"], []),
        ({"model": None}, ["none", "sn+natsv", "flow"], []),
    ],
)
def test_calibrations_of_something_else_meet_what_is_the_same_alone(tmp_path, changes, paper, original):
    rows = calibrated(tmp_path, **changes)
    assert [method for method, one in rows.items() if one["paper"]] == paper
    assert [method for method, one in rows.items() if one["original"]] == original
