"""Results become rows, with the score without a flow."""

import pytest
from msgspec.structs import replace

from bert_flow_tf.common.records import Training
from bert_flow_tf.report.collected import find_results
from bert_flow_tf.report.rows import score_rows, summarize
from tests.bert_flow_tf import records
from tests.bert_flow_tf.original import written
from tests.bert_flow_tf.original.written import CLS, CLS_FLOW, scores, task_scores, write

BASE = records.model(encoder=records.encoder("base"))


def rows_of(folder, *results):
    """Return the rows of results written to 0.json, 1.json, …."""
    return score_rows(
        find_results([write(folder / f"{i}.json", one) for i, one in enumerate(results)]).sources
    )


def test_task_of_several_sets_has_the_papers_protocol_and_the_other(tmp_path):
    several = task_scores("STS-12", {"wmean": 0.7, "mean": 0.69, "all": 0.72}, 3108)
    rows = rows_of(tmp_path, scores(BASE, sts12=several, stsb=task_scores()))
    assert [
        (
            row.task,
            row.protocol,
            row.pairs,
            row.values_x100,
            row.all_pairs_x100,
            row.published.paper,
        )
        for row in rows
    ] == [
        ("STS-12", "wmean", 3108, [70.0], 72.0, 57.84),
        ("STS-B", None, 1379, [73.08], None, 59.04),
    ]


def test_other_lengths_widths_and_pairs_have_no_figure(tmp_path):
    others = (
        replace(BASE, max_seq_length=128),
        replace(BASE, low_dim=4),
        replace(BASE, truncate_dim=4),
    )
    for row in rows_of(tmp_path, *map(scores, others), scores(stsb=task_scores(pairs=60))):
        assert (row.published.paper, row.published.original) == (None, ())


def test_evaluation_replaces_the_recipes_scores(tmp_path):
    run = written.write_run(tmp_path / "run")
    write(run / "recipe_scores.json", scores(CLS_FLOW, stsb=task_scores(score=0.784632)))
    (row,) = score_rows(find_results([run]).sources)
    assert (row.values_x100, row.pairs, row.seeds, row.model.flow.name) == (
        [78.4632],
        1379,
        [1234],
        "config_l3_d3_w32",
    )
    written.write_run(run, sickr=task_scores("SICK-R", 0.77, 4927), stsb=task_scores(score=0.79))
    rows = score_rows(find_results([run]).sources)
    assert {row.task: row.values_x100 for row in rows} == {"STS-B": [79.0], "SICK-R": [77.0]}


def test_reproduction_has_its_rows_with_all_seeds(tmp_path):
    record = written.reproduction({"last2avg": [0.81], "flow-target": [0.79, 0.80, 0.84]})
    folder = write(tmp_path / "out" / "reproduction.json", record).parent
    plain, target = score_rows(find_results([folder]).sources)
    assert (plain.name, plain.model.flow, plain.seeds) == ("last2avg", None, [])
    assert (target.seeds, target.pairs, target.values_x100) == ([1, 2, 3], 1379, [79, 80, 84])
    assert (target.mean_x100, target.baseline.name) == (pytest.approx(81), plain.name)
    summary = summarize([0.1, 0.4, 0.2])
    assert (summary.mean, summary.std, summary.median) == pytest.approx((0.7 / 3, 0.152752523, 0.2))


FLOW = scores(replace(CLS, flow=records.flow()), name="flow")
PLAIN = scores(CLS, name="plain", stsb=task_scores(score=0.7))
OTHER_MODELS = [
    {"pooling": "avg"},
    {"max_seq_length": 128},
    {"low_dim": 4},
    {"truncate_dim": 4},
    {"flow": records.flow()},
    {"encoder": records.encoder("demo", fingerprint="b" * 64, weights="b" * 64)},
]
OTHER_PAIRS = [task_scores("SICK-R"), task_scores(split="dev"), task_scores(pairs=60)]


@pytest.mark.parametrize(
    "other",
    [
        *(scores(replace(CLS, **one)) for one in OTHER_MODELS),
        *(scores(CLS, stsb=one) for one in OTHER_PAIRS),
    ],
)
def test_the_baseline_is_the_same_without_a_flow(tmp_path, other):
    assert rows_of(tmp_path, other, FLOW)[-1].baseline is None
    assert rows_of(tmp_path, other, PLAIN, FLOW)[-1].baseline.name == "plain"


def test_an_encoder_is_the_same_after_its_conversion(tmp_path):
    trained = records.encoder(fine_tuning=Training(task="allnli", seed=3), weights="index")
    converted = replace(trained, fingerprint="f" * 64)
    exported = replace(converted, weights="f" * 64)
    for one, other, is_same in (
        (trained, converted, True),
        (converted, exported, True),
        (trained, exported, False),
    ):
        flow = scores(replace(CLS, encoder=other, flow=records.flow()))
        rows = rows_of(tmp_path, scores(replace(CLS, encoder=one)), flow)
        assert rows[0].seeds == [3] and (rows[1].baseline is not None) == is_same


def test_without_another_baseline_it_is_the_models_own(tmp_path):
    after = {
        "sts12": task_scores("STS-12", {"wmean": 0.7, "all": 0.72}),
        "stsb": task_scores(score=0.78),
    }
    before = {"sts12": task_scores("STS-12", {"wmean": 0.6, "all": 0.65})}
    rows = rows_of(tmp_path, scores(CLS_FLOW, without_flow=before, **after))
    baselines = [(row.task, row.baseline and row.baseline.mean_x100) for row in rows]
    assert baselines == [("STS-12", pytest.approx(60)), ("STS-B", None)]
