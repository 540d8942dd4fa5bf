"""Sources become rows: a figure each, by task, split and protocol, with the encoder and the flow it is of."""

import json

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import score_task
from bert_flow_tf.evaluation.report_rows import score_rows, task_title
from bert_flow_tf.evaluation.report_sources import find_sources
from bert_flow_tf.evaluation.sts_sets import ScoredPairs, SimilarityTask
from tests.bert_flow_tf.evaluation import result_files as files


def rows_of(*paths):
    return score_rows(find_sources(paths)[0])


def test_an_evaluation_has_a_row_for_every_protocol_that_was_measured(tmp_path):
    gold = np.linspace(0, 5, 6)
    subsets = [ScoredPairs(name, [""] * 6, [""] * 6, gold) for name in ("MSRpar", "MSRvid")]
    task = SimilarityTask("sts12", "STS-12", "spearman", "test", "data", subsets)
    measured = score_task(task, [gold, np.array([0.5, 0.1, 0.2, 0.3, 0.4, 0.6])])
    path = files.write_json(tmp_path / "e.json", files.evaluation({"sts12": measured, **files.STSB}))
    rows = rows_of(path)
    assert [(row.task, row.protocol, row.pairs) for row in rows] == [
        ("STS-12", "wmean", 12),
        ("STS-12", "mean", 12),
        ("STS-12", "all", 12),
        ("STS-B", None, 1379),
    ]
    assert rows[0].values_x100 == [pytest.approx(100 * measured["spearman"]["wmean"])]
    assert rows[3].values_x100 == [78.84]
    assert {(row.encoder.name, row.pooling, row.flow, tuple(row.seeds)) for row in rows} == {("demo", "cls", None, ())}


def test_a_data_set_of_tensorflow_keeps_its_name(tmp_path):
    tasks = {"tfds:glue/stsb": files.scored_task("TFDS:GLUE/STSB", 0.8, 1500, split="validation")}
    (row,) = rows_of(files.write_json(tmp_path / "e.json", files.evaluation(tasks)))
    assert (row.task, row.split, row.pairs) == ("tfds:glue/stsb", "validation", 1500)


def test_a_run_has_the_recipes_score_and_those_of_its_evaluation_but_none_twice(tmp_path):
    run = files.write_run(tmp_path / "run", **files.FLOW)
    files.write_stamp(tmp_path, "run_scores", "STS-B, cls + flow", 0.784632)
    (row,) = rows_of(run)
    assert (row.values_x100, row.pairs, row.seeds, row.flow.config) == ([78.4632], 1379, [1234], "config_l3_d3_w32")
    model = files.model_record(files.run_record(run / "model.ckpt-269"), config="config_l3_d3_w32")
    sick = {"sickr": files.scored_task("SICK-R", 0.77, 4927)}
    # The recipe prints six decimals of the same number.
    same = {"stsb": files.scored_task("STS-B", 0.78463249, 1379)}
    files.write_json(run / "evaluation.json", files.evaluation({**sick, **same}, model))
    assert [(row.task, row.values_x100) for row in rows_of(run)] == [
        ("SICK-R", [77.0]),
        ("STS-B", [pytest.approx(78.463249)]),
    ]
    other = {"stsb": files.scored_task("STS-B", 0.79, 1379)}
    files.write_json(run / "evaluation.json", files.evaluation(other, model))
    assert [row.values_x100[0] for row in rows_of(run)] == [78.4632, 79.0]


def reproduction(values, *, seeds=(1, 2, 3), with_nli=False, nli_pairs=961_725, model=None, **task):
    """What `reproduce` writes: for each row's name its scores over the seeds."""

    def figures(scores):
        return {"mean": sum(scores) / len(scores), "std": None, "median": scores[0], "values": scores}

    def row(name, scores):
        run = {"learned_pairs": 8628 if name == "flow-target" else 5749} if name.startswith("flow") else None
        runs = [{"seed": seed, "directory": "/gone/run", "run": run} for seed in seeds]
        spearman = figures(scores)
        return {"spearman": spearman, "pearson": spearman, "settings": {}, "model": model, "runs": runs}

    return {
        "format_version": 1,
        "encoder": "demo",
        "encoder_flags": {"bert_hub": "demo"},
        "with_nli": with_nli,
        "nli_pairs": nli_pairs if with_nli else None,
        "seeds": list(seeds),
        "tasks": {
            "stsb": {
                "title": "STS-B",
                "metric": "spearman",
                "protocol": None,
                "split": "test",
                "source": "glue/STS-B",
                "pairs": 1379,
                "rows": {name: row(name, scores) for name, scores in values.items()},
                **task,
            }
        },
        "versions": files.VERSIONS,
    }


def test_a_reproduction_has_a_row_for_each_of_its_own_with_all_seeds(tmp_path):
    record = reproduction({"last2avg": [0.81], "flow-target": [0.79, 0.80, 0.84], "flow-train": [0.7, 0.7, 0.7]})
    files.write_json(tmp_path / "out" / "reproduction.json", record)
    plain, target, train = rows_of(tmp_path / "out")
    assert (plain.name, plain.pooling, plain.flow, plain.seeds) == ("out, last2avg", "avg-last-2", None, [])
    assert (target.seeds, target.pairs, target.encoder.name) == ([1, 2, 3], 1379, "demo")
    assert target.flow.flags["use_full_for_training"] == 1 and train.flow.flags["use_full_for_training"] == 0
    assert target.summary == {
        "mean_x100": pytest.approx(81),
        "std_x100": pytest.approx(np.std([79, 80, 84], ddof=1)),
        "median_x100": pytest.approx(80),
        "n": 3,
        "values_x100": [79, 80, 84],
    }


def test_seeds_and_scores_of_a_reproduction_must_be_as_many(tmp_path):
    files.write_json(tmp_path / "out" / "reproduction.json", reproduction({"flow-target": [0.8, 0.8]}))
    with pytest.raises(
        UserError, match=r"rows\.flow-target\.spearman\.values: found 2 values, expected one for each of 3"
    ):
        rows_of(tmp_path / "out")
    files.write_json(tmp_path / "out" / "reproduction.json", reproduction({"best": [0.8]}))
    with pytest.raises(UserError, match=r"rows\.best: found an unknown row, expected one of avg, last2avg"):
        rows_of(tmp_path / "out")


def test_after_nli_every_seed_counts_without_a_flow_too(tmp_path):
    files.write_json(tmp_path / "out" / "reproduction.json", reproduction({"avg": [0.7, 0.8, 0.9]}, with_nli=True))
    (row,) = rows_of(tmp_path / "out")
    assert (row.seeds, row.encoder.fine_tuning, row.encoder.fingerprint) == ([1, 2, 3], "NLI", None)


def test_predictions_of_two_labels_on_dev_are_told_so(tmp_path):
    run = files.write_run(tmp_path / "run", **files.FLOW)
    files.write_stamp(tmp_path, "run_scores", "QNLI-Regression, flow", 0.6, auc=0.7, split="dev")
    (run / "dev_results.tsv").write_text("0.5\n" * 7)
    (row,) = rows_of(run)
    assert (row.task, row.split, row.metric, row.pairs, row.values_x100) == ("QNLI", "dev", "auc", 7, [70])


def test_an_encoder_with_a_preprocess_model_of_its_own_is_not_the_papers(tmp_path):
    record = reproduction({"avg": [0.7]}) | {"encoder_flags": {"bert_hub": "base", "preprocess_hub": "/my/preprocess"}}
    files.write_json(tmp_path / "out" / "reproduction.json", record)
    assert [row.encoder.name for row in rows_of(tmp_path / "out")] == [None]


def test_fine_tuning_on_another_nli_set_is_not_the_papers(tmp_path):
    record = reproduction({"avg": [0.7, 0.8, 0.9]}, with_nli=True, nli_pairs=9840)
    files.write_json(tmp_path / "out" / "reproduction.json", record)
    assert [row.encoder.fine_tuning for row in rows_of(tmp_path / "out")] == ["other"]


def test_a_reproduction_of_several_sets_has_a_row_a_protocol(tmp_path):
    record = reproduction({"avg": [0.7]}, title="STS-12", protocol="wmean", pairs=3108)
    task = record["tasks"].pop("stsb")
    figures = task["rows"]["avg"]["spearman"]
    task["rows"]["avg"]["subsets"] = {"MSRvid": {"pairs": 750, "spearman": figures | {"mean": 0.5}}}
    task["rows"]["avg"]["protocols"] = {"spearman": {"wmean": figures, "all": figures | {"values": [0.6]}}}
    record["tasks"]["sts12"] = task
    files.write_json(tmp_path / "out" / "reproduction.json", record)
    rows = rows_of(tmp_path / "out")
    assert [(row.task, row.protocol, row.values_x100) for row in rows] == [
        ("STS-12", "wmean", [70]),
        ("STS-12", "all", [60]),
    ]
    assert [row.subsets for row in rows] == [{"MSRvid": 50}, {}]


def test_what_one_source_knows_of_an_encoder_the_others_know(tmp_path):
    files.write_run(tmp_path / "nli", **files.NLI)
    begins = str(tmp_path / "nli/model.ckpt-9")
    files.write_run(tmp_path / "run", fingerprint=files.TUNED, begins=begins, **files.FLOW)
    files.write_stamp(tmp_path, "run_scores", "STS-B, cls + flow", 0.8)
    model = files.model_record(handle="/cache/encoders/77", fingerprint=files.TUNED)
    files.write_json(tmp_path / "e.json", files.evaluation(model=model))
    files.write_stamp(tmp_path, "plain", "STS-B, cls", 0.73, bert_hub="demo")
    by_source = {row.source: row.encoder for row in rows_of(tmp_path)}
    assert (by_source["e.json"].name, by_source["e.json"].fine_tuning) == ("demo", "NLI")
    assert by_source["e.json"].weights == by_source["run"].weights
    assert by_source["plain"].weights != by_source["run"].weights
    # A name stands for one set of weights once another source says which.
    files.write_json(tmp_path / "f.json", files.evaluation())
    by_source = {row.source: row.encoder for row in rows_of(tmp_path)}
    assert by_source["plain"].weights == by_source["f.json"].weights == files.DEMO


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record["tasks"]["stsb"].pop("pairs"), "tasks.stsb.pairs: found nothing, expected a whole"),
        (lambda record: record["tasks"]["stsb"]["spearman"].update(all=78.8), "all: found 78.8, expected a fraction"),
        (lambda record: record.update(model=[]), "model: found [], expected an object"),
        (lambda record: record["model"]["encoder"].pop("bert_hub"), "model.encoder.bert_hub: found nothing"),
    ],
)
def test_a_broken_evaluation_is_one_line(tmp_path, change, message):
    record = json.loads(json.dumps(files.evaluation()))
    change(record)
    path = files.write_json(tmp_path / "e.json", record)
    with pytest.raises(UserError) as error:
        rows_of(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("sts-b", "STS-B"),
        ("stsb", "STS-B"),
        ("SICK-R", "SICK-R"),
        ("STS-12", "STS-12"),
        ("QNLI-regression", "QNLI"),
        ("mrpc-regression", "MRPC"),
    ],
)
def test_a_task_has_one_title_however_it_is_spelt(name, title):
    assert task_title(name) == title
