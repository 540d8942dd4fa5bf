"""Results become rows: a score each, by task, split and protocol, with the model it is of."""

import msgspec
import numpy as np
import pytest

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.errors import UserError
from bert_flow_tf.results.records import SubsetScores
from bert_flow_tf.results.rows import score_rows, summarize
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.runs.record import Training
from tests.bert_flow_tf import records
from tests.bert_flow_tf.results import written
from tests.bert_flow_tf.results.written import task_scores, write


def rows_of(*paths):
    return score_rows(find_sources(paths)[0])


def test_a_task_of_several_sets_has_a_row_per_protocol_and_its_sets_with_the_papers(tmp_path):
    by_protocol = {"wmean": 0.7, "mean": 0.69, "all": 0.72}
    subsets = {"MSRpar": SubsetScores(pairs=750, spearman=0.65), "MSRvid": SubsetScores(pairs=750, spearman=0.8)}
    several = task_scores("STS-12", by_protocol, 3108, subsets=subsets)
    rows = rows_of(write(tmp_path / "e.json", written.scores(sts12=several, stsb=task_scores())))
    assert [(row.task, row.protocol, row.pairs, row.values_x100) for row in rows] == [
        ("STS-12", "wmean", 3108, [70.0]),
        ("STS-12", "mean", 3108, [69.0]),
        ("STS-12", "all", 3108, [72.0]),
        ("STS-B", None, 1379, [73.08]),
    ]
    assert [row.subsets for row in rows] == [{"MSRpar": 65.0, "MSRvid": 80.0}, {}, {}, {}]


def test_a_data_set_of_tensorflow_keeps_its_name(tmp_path):
    scores = task_scores("TFDS:GLUE/STSB", 0.8, 1500, split="validation")
    (row,) = rows_of(write(tmp_path / "e.json", written.scores(**{"tfds:glue/stsb": scores})))
    assert (row.task, row.split, row.pairs) == ("tfds:glue/stsb", "validation", 1500)


def test_what_the_recipe_and_evaluate_both_scored_stands_once(tmp_path):
    run = written.write_run(tmp_path / "run")
    write(run / "recipe_scores.json", written.scores(written.CLS_FLOW, stsb=task_scores(score=0.784632)))
    (row,) = rows_of(run)
    assert (row.values_x100, row.pairs, row.seeds, row.model.flow.name) == ([78.4632], 1379, [1234], "config_l3_d3_w32")
    # The recipe rounds the same number to six decimals.
    same = {"sickr": task_scores("SICK-R", 0.77, 4927), "stsb": task_scores(score=0.78463249)}
    written.write_run(run, **same)
    assert [(row.task, row.values_x100) for row in rows_of(run)] == [
        ("SICK-R", [77.0]),
        ("STS-B", [pytest.approx(78.463249)]),
    ]
    written.write_run(run, stsb=task_scores(score=0.79))
    assert [row.values_x100[0] for row in rows_of(run)] == [78.4632, 79.0]
    # The same figure of another task is another score.
    written.write_run(run, sickr=task_scores("SICK-R", 0.784632, 4927))
    assert [row.task for row in rows_of(run)] == ["STS-B", "SICK-R"]


def model_of_row(name, seed):
    return records.model(flow=records.flow(seed=seed) if name.startswith("flow") else None)


def test_a_reproduction_has_a_row_for_each_of_its_own_with_all_seeds(tmp_path):
    record = written.reproduction({"last2avg": [0.81], "flow-target": [0.79, 0.80, 0.84]}, model_of_row)
    plain, target = rows_of(write(tmp_path / "out" / "reproduction.json", record).parent)
    assert (plain.name, plain.model.flow, plain.seeds) == ("out, last2avg", None, [])
    assert (target.seeds, target.pairs, target.model.encoder.name) == ([1, 2, 3], 1379, "demo")
    assert target.summary == {
        "mean_x100": pytest.approx(81),
        "std_x100": pytest.approx(np.std([79, 80, 84], ddof=1)),
        "median_x100": pytest.approx(80),
        "n": 3,
        "values_x100": [79, 80, 84],
    }


def test_an_encoder_that_one_source_names_has_its_name_in_all(tmp_path):
    unnamed, other = (records.model(encoder=records.encoder(None, fingerprint=one)) for one in (records.DEMO, "b" * 64))
    paths = [
        write(tmp_path / f"{i}.json", written.scores(model, stsb=task_scores()))
        for i, model in enumerate((unnamed, records.model(), other))
    ]
    assert [row.model.encoder.name for row in rows_of(*paths)] == ["demo", "demo", None]


def test_seeds_that_were_scored_by_other_protocols_are_refused(tmp_path):
    record = written.reproduction({"last2avg": [0.81, 0.82]}, model_of_row)
    other = msgspec.structs.replace(
        record.tasks["stsb"].rows["last2avg"].runs[1], scores=task_scores(score={"mean": 1})
    )
    record.tasks["stsb"].rows["last2avg"].runs[1] = other
    with pytest.raises(UserError, match=r"rows\.last2avg\.runs: found seeds scored by different protocols"):
        rows_of(write(tmp_path / "reproduction.json", record))


def test_after_fine_tuning_every_seed_counts_without_a_flow_too():
    tuned = records.encoder(fine_tuning=Training(task="allnli", settings={"seed": 3}, seed=3))
    assert records.model(encoder=tuned).seed == 3
    assert records.model(encoder=tuned, flow=records.flow(seed=7)).seed == 7
    assert records.model().seed is None


@pytest.mark.parametrize(
    ("name", "title"),
    [("stsb", "STS-B"), ("STS-B", "STS-B"), ("sick-r", "SICK-R"), ("QNLI-regression", "QNLI"), ("sts-12", "STS-12")],
)
def test_a_task_is_titled_as_the_paper_prints_it(name, title):
    assert task_title(name) == title


def test_seeds_are_summarised_as_in_table_8():
    summary = summarize([0.1, 0.4, 0.2])
    assert summary["mean"] == pytest.approx(0.7 / 3)
    assert summary["std"] == pytest.approx(0.152752523)
    assert (summary["median"], summary["values"]) == (0.2, [0.1, 0.4, 0.2])
    assert summarize([0.5])["std"] is None
