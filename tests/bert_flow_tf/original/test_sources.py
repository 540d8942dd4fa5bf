"""Results are recognised by their content."""

import os

import pytest

from bert_flow_tf.report.collected import Predictions, find_results
from tests.bert_flow_tf import records
from tests.bert_flow_tf.original import written
from tests.bert_flow_tf.original.written import write
from tests.refusals import user_error


@pytest.fixture
def results(tmp_path):
    """A folder with one of every kind, and some that are none."""
    written.write_all(tmp_path)
    for name in ("evaluation.json", "predicted/recipe_scores.json"):
        write(tmp_path / name, written.scores())
    (tmp_path / "export").mkdir()
    (tmp_path / ".a.json.part.json").write_text("{")
    write(tmp_path / "other.json", {"rows": 3})
    predicted = Predictions(
        made_by=records.MADE_BY, model=records.model(), task="sts-b", splits=["test"], pairs=3
    )
    write(tmp_path / "test_results.json", predicted)
    return tmp_path


def test_a_folder_stands_for_its_results_in_order_of_names(results):
    sources, left_out = find_results([results])
    names = {
        "calibration.json": ["comparison"],
        "demo.json": ["scores"],
        "": ["scores"],
        "isotropy.json": ["isotropy"],
        "predicted": ["scores"],
        "run": ["scores"],
        "seeds": ["reproduction"],
    }
    expected = [(str(results / name), kind) for name, kinds in names.items() for kind in kinds]
    assert [(source.label, source.result.__struct_config__.tag) for source in sources] == expected
    assert [find_results([source.path]).sources for source in sources] == [
        [source] for source in sources
    ]
    reasons = {one.path.name: one.reason for one in left_out}
    assert reasons.keys() == {"export", "other.json", "test_results.json"}
    assert "gold" in reasons["test_results.json"]


def predictions(**more):
    """The record of three predicted cosines."""
    fields = {"made_by": records.MADE_BY, "task": "sts-b", "splits": ["test"], "pairs": 3}
    return Predictions(model=records.model(), **fields, **more)


def test_scored_predictions_are_results_of_their_run(tmp_path):
    run = written.write_run(tmp_path / "runs" / "trained")
    write(tmp_path / "runs" / "old" / "test_results.json", predictions())
    scored = predictions(scores=written.task_scores(pairs=3))
    write(tmp_path / "runs" / "plain" / "test_results.json", scored)
    write(tmp_path / "runs" / "plain" / "model.ckpt-0.test_results.json", scored)
    sources, left_out = find_results([tmp_path / "runs"])
    plain = str(tmp_path / "runs" / "plain")
    assert [source.label for source in sources] == [f"{plain}, model.ckpt-0", plain]
    assert [one.path.name for one in left_out] == ["test_results.json", "trained"]
    assert find_results([plain]).sources == sources
    # A later evaluation replaces the predictions' score, and makes an old record no loss.
    write(run / "test_results.json", predictions())
    write(run / "evaluation.json", written.scores())
    assert [source.path.name for source in find_results([run]).sources] == ["evaluation.json"]
    assert find_results([run]).left_out == []


def test_a_path_without_results_is_named(results):
    os.mkfifo(results / "pipe")
    write(results / "unfinished" / "config.json", records.run_config())
    write(results / "encoder" / "config.json", {"model_type": "bert", "hidden_size": 8})
    for name in ("none.json", "export", "other.json", "pipe", "unfinished", "encoder"):
        with user_error(f"runs: {results / name}: "):
            find_results([results / name])
    with user_error("demo.jso: no such file or folder; did you mean demo.json?"):
        find_results([results / "demo.jso"])
    (reason,) = (
        one.reason for one in find_results([results]).left_out if one.path.name == "unfinished"
    )
    assert "not finished" in reason


def test_a_broken_or_older_file_is_named(results):
    for text in (
        "{",
        '{"kind": "scores", "format_version": 1}',
        '{"kind": "scores", "format_version": 2}',
    ):
        (results / "demo.json").write_text(text)
        with user_error("demo.json: "):
            find_results([results])
