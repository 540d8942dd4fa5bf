"""Every kind of result is known by what is in it, and what is none is refused or left out."""

import os

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.results.records import Predictions
from bert_flow_tf.results.sources import find_sources
from tests.bert_flow_tf import records
from tests.bert_flow_tf.results import written
from tests.bert_flow_tf.results.written import write


def model_of_row(name, seed):
    return records.model()


@pytest.fixture
def results(tmp_path):
    """A folder with one of every kind, and some that are none."""
    written.write_run(tmp_path / "a_run")
    write(tmp_path / "b_evaluation.json", written.scores())
    write(tmp_path / "c_calibration.json", written.calibrations())
    write(tmp_path / "d_lexical" / "results.json", written.lexical(), "lexical.svg")
    write(tmp_path / "e_words" / "results.json", written.words(), "words.svg")
    write(tmp_path / "f_reproduction" / "reproduction.json", written.reproduction({"last2avg": [0.8]}, model_of_row))
    write(tmp_path / "g_predictions" / "recipe_scores.json", written.scores())
    (tmp_path / "export").mkdir()
    (tmp_path / ".a.json.part.json").write_text("{")
    write_json(tmp_path / "other.json", {"rows": 3})
    predicted = Predictions(made_by=records.MADE_BY, model=records.model(), task="sts-b", splits=["test"], pairs=3)
    write(tmp_path / "test_results.json", predicted)
    return tmp_path


KINDS = ["run", "evaluation", "calibration", "lexical", "words", "reproduction", "predictions"]


def test_a_folder_of_results_stands_for_them_in_order_of_their_names(results):
    sources, left_out = find_sources([results])
    assert [source.kind for source in sources] == KINDS
    assert [path.name for path in left_out] == ["export", "other.json", "test_results.json"]


def test_each_of_them_alone_is_the_same_source(results):
    for source in find_sources([results])[0]:
        (alone,), left_out = find_sources([source.path])
        assert (alone.kind, alone.path, left_out) == (source.kind, source.path, [])


def test_an_analysis_and_a_reproduction_may_be_named_by_their_file(results):
    sources, _ = find_sources([results / "d_lexical/results.json", results / "f_reproduction/reproduction.json"])
    assert [source.path.name for source in sources] == ["d_lexical", "f_reproduction"]


def test_labels_are_the_shortest_ends_of_paths_that_differ(tmp_path):
    for name in ("one/run", "two/run", "one/other"):
        written.write_run(tmp_path / name)
    sources, _ = find_sources([tmp_path / "one", tmp_path / "two"])
    assert [source.label for source in sources] == ["other", "one/run", "two/run"]


def refused(*paths):
    with pytest.raises(UserError) as error:
        find_sources(paths)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_files_of_evaluate_and_calibrate_stand_for_themselves_whatever_they_are_called(tmp_path):
    write(tmp_path / "evaluation.json", written.scores())
    write(tmp_path / "scores.json", written.scores())
    write(tmp_path / "calibrations.json", written.calibrations())
    assert [source.kind for source in find_sources([tmp_path])[0]] == ["calibration", "evaluation", "evaluation"]


def test_what_is_no_result_is_refused(results):
    assert "none.json: no such file or folder" in refused(results / "none.json")
    assert "export: found a folder without results" in refused(results / "export")
    assert "other.json: found a file of another kind" in refused(results / "other.json")
    os.mkfifo(results / "pipe")
    assert "pipe: found a file of another kind" in refused(results / "pipe")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "found text that is not JSON"),
        ('{"kind": "scores", "format_version": 1}', "found format_version 1, expected 2"),
        # As version 1 wrote it, without a kind.
        ('{"format_version": 1, "tasks": {}}', "found format_version 1, expected 2: results of bert-flow; another"),
        ('{"kind": "scores", "format_version": 2}', "made_by: found nothing"),
    ],
)
def test_a_broken_or_older_file_is_refused_even_within_a_folder(results, text, message):
    (results / "b_evaluation.json").write_text(text)
    assert f"b_evaluation.json: {message}" in refused(results)


def test_a_run_that_left_no_results_is_refused(tmp_path):
    write(tmp_path / "run" / "config.json", records.run_config())
    assert "run: found a run without results" in refused(tmp_path / "run")
    assert "run: found a run without results" in refused(tmp_path)


def test_the_same_thing_twice_is_refused(results):
    assert "a_run: found twice" in refused(results, results / "a_run")
    written.write_run(results / "a_run", stsb=written.task_scores())
    assert "found twice" in refused(results / "a_run", results / "a_run" / "evaluation.json")


def test_a_folder_of_a_hugging_face_encoder_is_no_run(tmp_path):
    write(tmp_path / "encoder" / "config.json", {"model_type": "bert", "hidden_size": 8})
    assert "found a folder without results" in refused(tmp_path / "encoder")


def test_an_earlier_report_is_no_result(results):
    write(results / "report" / "results.json", {"format_version": 2, "kind": "report"})
    assert [source.kind for source in find_sources([results])[0]] == KINDS
    assert "report: found a folder without results" in refused(results / "report")
