"""Results become rows: a score each, by task, split and protocol, beside the score without a flow."""

import pytest
from msgspec.structs import replace

from bert_flow_tf.results.records import summarize
from bert_flow_tf.results.rows import score_rows
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.runs.record import Training
from tests.bert_flow_tf import records
from tests.bert_flow_tf.results import written
from tests.bert_flow_tf.results.written import task_scores, write


def rows_of(*paths):
    return score_rows(find_sources(paths))


def test_task_of_several_sets_has_a_row_per_protocol(tmp_path):
    several = task_scores("STS-12", {"wmean": 0.7, "mean": 0.69, "all": 0.72}, 3108)
    base = records.model(encoder=records.encoder("base"))
    rows = rows_of(write(tmp_path / "e.json", written.scores(base, sts12=several, stsb=task_scores())))
    assert [(row.task, row.protocol, row.pairs, row.values_x100, row.published.paper) for row in rows] == [
        ("STS-12", "wmean", 3108, [70.0], 57.84),
        ("STS-12", "mean", 3108, [69.0], None),
        ("STS-12", "all", 3108, [72.0], None),
        ("STS-B", None, 1379, [73.08], 59.04),
    ]


@pytest.mark.parametrize("change", [{"max_seq_length": 128}, {"low_dim": 4}])
def test_other_lengths_and_widths_have_no_figure(tmp_path, change):
    scores = written.scores(replace(records.model(encoder=records.encoder("base")), **change))
    assert rows_of(write(tmp_path / "e.json", scores))[0].published.paper is None


def test_part_of_the_pairs_has_no_figure(tmp_path):
    (row,) = rows_of(write(tmp_path / "e.json", written.scores(stsb=task_scores(pairs=60))))
    assert row.published.original == ()


def test_data_set_of_tensorflow_keeps_its_name(tmp_path):
    scores = task_scores("TFDS:GLUE/STSB", 0.8, 1500, split="validation")
    (row,) = rows_of(write(tmp_path / "e.json", written.scores(**{"tfds:glue/stsb": scores})))
    assert (row.task, row.split, row.pairs) == ("tfds:glue/stsb", "validation", 1500)


def test_evaluation_replaces_the_recipes_scores(tmp_path):
    run = written.write_run(tmp_path / "run")
    write(run / "recipe_scores.json", written.scores(written.CLS_FLOW, stsb=task_scores(score=0.784632)))
    (row,) = rows_of(run)
    assert (row.values_x100, row.pairs, row.seeds, row.model.flow.name) == ([78.4632], 1379, [1234], "config_l3_d3_w32")
    written.write_run(run, sickr=task_scores("SICK-R", 0.77, 4927), stsb=task_scores(score=0.79))
    assert {row.task: row.values_x100 for row in rows_of(run)} == {"STS-B": [79.0], "SICK-R": [77.0]}


def model_of_row(name, seed):
    return records.model(flow=records.flow(seed=seed) if name.startswith("flow") else None)


def test_reproduction_has_its_rows_with_all_seeds(tmp_path):
    record = written.reproduction({"last2avg": [0.81], "flow-target": [0.79, 0.80, 0.84]}, model_of_row)
    plain, target = rows_of(write(tmp_path / "out" / "reproduction.json", record).parent)
    assert (plain.name, plain.model.flow, plain.seeds) == (f"{tmp_path / 'out'}, last2avg", None, [])
    assert (target.seeds, target.pairs, target.values_x100) == ([1, 2, 3], 1379, [79, 80, 84])
    assert (target.mean_x100, target.baseline.name) == (pytest.approx(81), plain.name)


CLS = records.model(pooling="cls")


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": "avg"},
        {"max_seq_length": 128},
        {"low_dim": 4},
        {"flow": records.flow()},
        {"encoder": records.encoder("demo", fingerprint="b" * 64, weights="b" * 64)},
    ],
)
def test_the_baseline_is_the_same_without_a_flow(tmp_path, change):
    flow = write(tmp_path / "flow.json", written.scores(replace(CLS, flow=records.flow()), stsb=task_scores()))
    other = write(tmp_path / "other.json", written.scores(replace(CLS, **change), stsb=task_scores()))
    assert rows_of(other, flow)[1].baseline is None
    plain = write(tmp_path / "plain.json", written.scores(CLS, stsb=task_scores(score=0.7)))
    assert rows_of(other, flow, plain)[1].baseline.name == str(plain)


@pytest.mark.parametrize("scores", [task_scores("SICK-R"), task_scores(split="dev"), task_scores(pairs=60)])
def test_the_baseline_is_of_the_same_pairs(tmp_path, scores):
    flow = write(tmp_path / "flow.json", written.scores(replace(CLS, flow=records.flow()), stsb=task_scores()))
    plain = write(tmp_path / "plain.json", written.scores(CLS, stsb=scores))
    assert rows_of(plain, flow)[1].baseline is None


def test_an_encoder_is_the_same_before_and_after_it_was_converted(tmp_path):
    trained = records.encoder(fine_tuning=Training(task="allnli", seed=3), weights="index")
    converted = replace(trained, fingerprint="f" * 64)
    exported = replace(converted, weights="f" * 64)
    for one, other, is_same in ((trained, converted, True), (converted, exported, True), (trained, exported, False)):
        plain = write(tmp_path / "plain.json", written.scores(replace(CLS, encoder=one)))
        flow = write(tmp_path / "flow.json", written.scores(replace(CLS, encoder=other, flow=records.flow())))
        assert (rows_of(plain, flow)[1].baseline is not None) == is_same


def test_without_another_baseline_it_is_the_models_own(tmp_path):
    after = {"sts12": task_scores("STS-12", {"wmean": 0.7, "all": 0.72}), "stsb": task_scores(score=0.78)}
    before = {"sts12": task_scores("STS-12", {"wmean": 0.6, "all": 0.65})}
    path = write(tmp_path / "e.json", replace(written.scores(written.CLS_FLOW, **after), without_flow=before))
    baselines = [(row.task, row.baseline and row.baseline.mean_x100) for row in rows_of(path)]
    assert baselines == [("STS-12", pytest.approx(60)), ("STS-12", pytest.approx(65)), ("STS-B", None)]


def test_after_fine_tuning_every_seed_counts_without_a_flow_too():
    tuned = records.encoder(fine_tuning=Training(task="allnli", settings={"seed": 3}, seed=3))
    assert records.model(encoder=tuned).training.seed == 3
    assert records.model(encoder=tuned, flow=records.flow(seed=7)).training.seed == 7
    assert records.model().training is None


def test_seeds_are_summarised_as_in_table_8():
    summary = summarize([0.1, 0.4, 0.2])
    assert summary.mean == pytest.approx(0.7 / 3)
    assert summary.std == pytest.approx(0.152752523)
    assert summary.median == 0.2
    assert summarize([0.5]).std is None
