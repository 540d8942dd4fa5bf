"""Files and folders of results: refused before any work, then written whole."""

import json

import click
import pytest

from bert_flow_tf.commands.outputs import results_folder, write_results
from bert_flow_tf.errors import UserError


def check(path):
    """Asks whether an analysis of words may replace what is at the path."""
    with click.Context(click.Command("analyze")):
        return results_folder(str(path), analysis="words", overwrite=True)


def test_record_is_written_below_folders_that_are_made_for_it(tmp_path, capsys):
    path = tmp_path / "new" / "folder" / "a.json"
    write_results(path, {"encoder": "größer", "spearman": 0.1})
    assert json.loads(path.read_text(encoding="utf-8")) == {"encoder": "größer", "spearman": 0.1}
    assert [found.name for found in path.parent.iterdir()] == ["a.json"]
    assert capsys.readouterr().out == f"results written: {path}\n"


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"kind": "lexical"}'])
def test_overwrite_replaces_nothing_but_an_analysis_of_the_same_kind(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(UserError, match=r"holds no results\.json of an `analyze words` folder"):
        check(tmp_path)
    (tmp_path / "results.json").write_text('{"kind": "words"}')
    (tmp_path / "words.png").write_bytes(b"")
    assert check(tmp_path) == tmp_path
    (tmp_path / "calibrations.json").write_text("mine")
    with pytest.raises(UserError, match=r"holds calibrations\.json beside an `analyze words` folder"):
        check(tmp_path)
