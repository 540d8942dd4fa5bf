"""Files and folders of results: refused before any work, then written whole."""

import json
import os
import pathlib

import pytest

from bert_flow_tf.commands.results import results_file, results_folder, versions, write_results
from bert_flow_tf.errors import UserError
from tests.bert_flow_tf.commands.refusals import files_below

# Nobody, not even root, can make a file there.
UNWRITABLE = pathlib.Path("/proc/none")


def line_of(function, *arguments, **keywords):
    with pytest.raises(UserError) as error:
        function(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


def file_line(path, overwrite=False):
    return line_of(results_file, path, flag=f"--out={path}", overwrite=overwrite)


def folder_line(path, overwrite=False):
    return line_of(results_folder, str(path), analysis="words", overwrite=overwrite)


def test_record_is_written_below_folders_that_are_made_for_it_and_not_before(tmp_path, capsys):
    path = results_file(tmp_path / "new" / "folder" / "a.json", flag="--out", overwrite=False)
    assert files_below(tmp_path) == {}
    write_results(path, {"encoder": "größer", "spearman": 0.1})
    assert json.loads(path.read_text(encoding="utf-8")) == {"encoder": "größer", "spearman": 0.1}
    assert [found.name for found in path.parent.iterdir()] == ["a.json"]
    assert capsys.readouterr().out == f"results written: {path}\n"


def test_what_is_there_is_kept_without_overwrite(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    assert file_line(path) == f"--out={path}: exists, expected a new file (--out names another) or --overwrite"
    assert folder_line(tmp_path) == f"--out={tmp_path}: exists, expected a new folder or --overwrite"
    assert results_file(path, flag="--out", overwrite=True) == path


def test_a_folder_is_no_file(tmp_path):
    assert file_line(tmp_path, overwrite=True) == f"--out={tmp_path}: found a folder, expected a file's name"


@pytest.mark.parametrize("line", [file_line, folder_line])
def test_a_place_that_cannot_be_written_to_is_refused(line, tmp_path):
    assert line(UNWRITABLE / "a").startswith("--out=/proc/none/a: /proc cannot be written to (")
    (tmp_path / "file").write_text("")
    assert f"{tmp_path / 'file'} cannot be written to (Not a directory)" in line(tmp_path / "file" / "a")
    if os.geteuid():
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "cannot be written to (Permission denied)" in line(tmp_path / "locked" / "a")


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '{"analysis": "lexical"}'])
def test_overwrite_replaces_nothing_but_an_analysis_of_the_same_kind(tmp_path, text):
    if text is not None:
        (tmp_path / "results.json").write_text(text)
    line = f"--out={tmp_path}: holds no results.json of `analyze words`, expected one to overwrite"
    assert folder_line(tmp_path, overwrite=True) == line
    (tmp_path / "results.json").write_text('{"analysis": "words"}')
    assert results_folder(str(tmp_path), analysis="words", overwrite=True) == tmp_path


def test_versions_are_those_of_what_figures_come_from():
    import numpy
    import tensorflow

    found = versions()
    assert (found["numpy"], found["tensorflow"]) == (numpy.__version__, tensorflow.__version__)
    assert {"python", "bert-flow-tf", "scipy", "scikit-learn"} <= found.keys()


def test_whatever_lies_beside_an_analysis_is_not_overwritten_with_it(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"analysis": "words"}))
    (tmp_path / "words.png").write_bytes(b"")
    assert results_folder(str(tmp_path), analysis="words", overwrite=True) == tmp_path
    (tmp_path / "calibrations.json").write_text("mine")
    assert "holds calibrations.json beside an analysis" in folder_line(tmp_path, overwrite=True)
