"""Every kind of result is told by what is in it, and what is none is refused or left out."""

import json

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.report_sources import find_sources, is_report
from tests.bert_flow_tf.evaluation import result_files as files


@pytest.fixture
def results(tmp_path):
    """A folder with one of every kind, and two folders that are none."""
    files.write_run(tmp_path / "a_run", **files.FLOW)
    files.write_json(tmp_path / "b_evaluation.json", files.evaluation())
    files.write_json(tmp_path / "c_calibration.json", files.calibration())
    files.write_lexical(tmp_path / "d_lexical")
    files.write_words(tmp_path / "e_words")
    record = {"format_version": 1, "with_nli": False, "encoder_flags": {"bert_hub": "demo"}, "tasks": {}}
    files.write_json(tmp_path / "f_reproduction" / "reproduction.json", record)
    files.write_stamp(tmp_path, "g_predictions", "STS-B, cls", 0.73, bert_hub="demo")
    (tmp_path / "export").mkdir()
    (tmp_path / ".a.json.part.json").write_text("{")
    files.write_json(tmp_path / "other.json", {"rows": 3})
    return tmp_path


KINDS = ["run", "evaluation", "calibration", "lexical", "words", "reproduction", "predictions"]


def test_a_folder_of_results_stands_for_them_in_order_of_their_names(results):
    sources, left_out = find_sources([results])
    assert [source.kind for source in sources] == KINDS
    assert [path.name for path in left_out] == ["export", "other.json", "recipe"]


def test_each_of_them_alone_is_the_same_source(results):
    for source in find_sources([results])[0]:
        (alone,), left_out = find_sources([source.path])
        assert (alone.kind, alone.path, left_out) == (source.kind, source.path, [])


def test_an_analysis_and_a_reproduction_may_be_named_by_their_file(results):
    sources, _ = find_sources([results / "d_lexical/results.json", results / "f_reproduction/reproduction.json"])
    assert [source.path.name for source in sources] == ["d_lexical", "f_reproduction"]


def test_labels_are_the_shortest_ends_of_paths_that_differ(tmp_path):
    for parent in ("one", "two"):
        files.write_run(tmp_path / parent / "run", **files.FLOW)
    files.write_run(tmp_path / "one" / "other", **files.FLOW)
    sources, _ = find_sources([tmp_path / "one", tmp_path / "two"])
    assert [source.label for source in sources] == ["other", "one/run", "two/run"]


def refused(*paths):
    with pytest.raises(UserError) as error:
        find_sources(paths)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_no_result_is_refused_by_name(results, tmp_path):
    assert "nowhere: no such file or folder, expected a run of run_siamese" in refused(tmp_path / "nowhere")
    assert "export: found a folder without results" in refused(results / "export")
    assert "other.json: found other content" in refused(results / "other.json")


def test_a_broken_file_is_refused_even_within_a_folder(results):
    (results / "b_evaluation.json").write_text("{")
    assert "b_evaluation.json: found text that is not JSON" in refused(results)


def test_a_run_of_a_future_version_is_refused(results):
    path = results / "a_run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 2}))
    assert "config.json: found format_version 2, expected 1" in refused(results / "a_run")


def test_a_run_that_left_no_results_is_refused(tmp_path):
    run = files.write_run(tmp_path / "run", on_dev=False, **files.FLOW)
    assert "run: found a run without results" in refused(run)
    files.write_json(run / "evaluation.json", files.evaluation())
    assert find_sources([run])[0][0].kind == "run"


def test_the_same_thing_twice_is_refused(results):
    assert "a_run: found twice" in refused(results / "a_run", results)
    files.write_json(results / "a_run" / "evaluation.json", files.evaluation())
    assert "found twice" in refused(results / "a_run", results / "a_run" / "evaluation.json")


def test_a_folder_of_a_hugging_face_encoder_is_no_run(tmp_path):
    files.write_json(tmp_path / "encoder" / "config.json", {"model_type": "bert", "hidden_size": 8})
    assert "found a folder without results" in refused(tmp_path / "encoder")


def test_an_earlier_report_is_no_result(results):
    files.write_json(results / "report" / "results.json", {"format_version": 1, "made_by": "bert-flow report"})
    assert is_report(results / "report") and not is_report(results / "d_lexical")
    assert [source.kind for source in find_sources([results])[0]] == KINDS
    assert "report: found a folder without results" in refused(results / "report")


def test_an_unfinished_stage_is_no_score(results):
    stamp = results / "recipe" / "g_predictions.json"
    stamp.write_text(json.dumps(json.loads(stamp.read_text()) | {"state": "running"}))
    assert "found a folder without results" in refused(results / "g_predictions")


def test_predictions_of_a_flow_that_another_run_learned_are_left_to_the_reproduction(results):
    files.write_stamp(results, "h_flow_elsewhere", "STS-B, flow-nli", 0.7, bert_hub="demo", flow="1")
    assert [source.kind for source in find_sources([results])[0]] == KINDS
