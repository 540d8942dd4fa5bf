"""Results are recognised by their content."""

import os

import pytest

from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.results.records import Predictions
from bert_flow_tf.results.sources import find_sources
from tests.bert_flow_tf import records
from tests.bert_flow_tf.results import written
from tests.bert_flow_tf.results.written import write
from tests.refusals import user_error


@pytest.fixture
def results(tmp_path):
    """A folder with one of every kind, and some that are none."""
    written.write_run(tmp_path / "a_run")
    for name in ("b_scores.json", "evaluation.json", "g_predictions/recipe_scores.json"):
        write(tmp_path / name, written.scores())
    write(tmp_path / "c_calibration.json", written.calibrations())
    write(tmp_path / "d_lexical" / "results.json", written.lexical(), "lexical.svg")
    write(tmp_path / "e_words" / "results.json", written.words(), "words.svg")
    reproduction = written.reproduction({"last2avg": [0.8]}, lambda name, seed: records.model())
    write(tmp_path / "f_reproduction" / "reproduction.json", reproduction)
    (tmp_path / "export").mkdir()
    (tmp_path / ".a.json.part.json").write_text("{")
    write_json(tmp_path / "other.json", {"rows": 3})
    predicted = Predictions(made_by=records.MADE_BY, model=records.model(), task="sts-b", splits=["test"], pairs=3)
    write(tmp_path / "test_results.json", predicted)
    return tmp_path


def test_a_folder_stands_for_its_results_in_order_of_names(results):
    sources = find_sources([results])
    kinds = ["training", "scores", "calibrations", "lexical", "words", "scores", "reproduction", "scores"]
    assert [source.result.__struct_config__.tag for source in sources] == kinds
    named = [str(results / name) for name in ("a_run", "b_scores.json", "c_calibration.json", "d_lexical")]
    assert [source.label for source in sources[:4]] == named
    assert [find_sources([source.path]) for source in sources] == [[source] for source in sources]


def test_a_path_without_results_is_named(results):
    os.mkfifo(results / "pipe")
    write(results / "run" / "config.json", records.run_config())
    write(results / "encoder" / "config.json", {"model_type": "bert", "hidden_size": 8})
    for name in ("none.json", "export", "other.json", "pipe", "run", "encoder"):
        with user_error(name):
            find_sources([results / name])
    with user_error("run: "):
        find_sources([results])


@pytest.mark.parametrize(
    "text", ["{", '{"kind": "scores", "format_version": 1}', '{"kind": "scores", "format_version": 2}']
)
def test_a_broken_or_older_file_is_named(results, text):
    (results / "b_scores.json").write_text(text)
    with user_error("b_scores.json: "):
        find_sources([results])
