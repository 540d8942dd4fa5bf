"""Results are recognised by their content."""

import os

import pytest

from bert_flow_tf.original.records import Predictions, find_sources
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
    sources = find_sources([results])
    names = {
        "calibration.json": ["comparison"],
        "demo.json": ["scores"],
        "": ["scores"],
        "isotropy.json": ["isotropy"],
        "predicted": ["scores"],
        "run": ["training", "scores"],
        "seeds": ["reproduction"],
    }
    expected = [(str(results / name), kind) for name, kinds in names.items() for kind in kinds]
    assert [(source.label, source.result.__struct_config__.tag) for source in sources] == expected
    assert [find_sources([source.path]) for source in sources] == [[source] for source in sources]


def test_a_path_without_results_is_named(results):
    os.mkfifo(results / "pipe")
    write(results / "unfinished" / "config.json", records.run_config())
    write(results / "encoder" / "config.json", {"model_type": "bert", "hidden_size": 8})
    for name in ("none.json", "export", "other.json", "pipe", "unfinished", "encoder"):
        with user_error(name):
            find_sources([results / name])
    with user_error("unfinished: "):
        find_sources([results])


def test_a_broken_or_older_file_is_named(results):
    for text in (
        "{",
        '{"kind": "scores", "format_version": 1}',
        '{"kind": "scores", "format_version": 2}',
    ):
        (results / "demo.json").write_text(text)
        with user_error("demo.json: "):
            find_sources([results])
