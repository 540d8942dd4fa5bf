"""Every kind of result is known by what is in it, and anything else is an error or left out."""

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


def test_a_folder_of_results_stands_for_them_in_order_of_their_names(results):
    sources = find_sources([results])
    kinds = ["training", "scores", "calibrations", "lexical", "words", "reproduction", "scores"]
    assert [source.result.__struct_config__.tag for source in sources] == kinds
    assert [source.label for source in sources[:3]] == [
        str(results / name) for name in ("a_run", "b_evaluation.json", "c_calibration.json")
    ]
    assert [find_sources([source.path]) for source in sources] == [[source] for source in sources]


def test_files_of_evaluate_stand_for_themselves_whatever_they_are_called(tmp_path):
    write(tmp_path / "evaluation.json", written.scores())
    write(tmp_path / "scores.json", written.scores())
    assert [source.path.name for source in find_sources([tmp_path])] == ["evaluation.json", "scores.json"]


def refused(*paths):
    with pytest.raises(UserError) as error:
        find_sources(paths)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_path_without_results_is_one_line(results):
    os.mkfifo(results / "pipe")
    for name in ("none.json", "export", "other.json", "pipe"):
        assert name in refused(results / name)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"kind": "scores", "format_version": 1}',
        '{"kind": "scores", "format_version": 2}',
    ],
)
def test_a_broken_or_older_file_is_one_line(results, text):
    (results / "b_evaluation.json").write_text(text)
    assert "b_evaluation.json: " in refused(results)


def test_a_run_that_left_no_results_is_one_line(tmp_path):
    write(tmp_path / "run" / "config.json", records.run_config())
    assert "run: " in refused(tmp_path / "run")
    assert "run: " in refused(tmp_path)


def test_a_folder_of_a_hugging_face_encoder_is_no_run(tmp_path):
    write(tmp_path / "encoder" / "config.json", {"model_type": "bert", "hidden_size": 8})
    assert "found no results" in refused(tmp_path / "encoder")
