"""Where an output may be written, and what an output may replace."""

import os
import pathlib

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.outputs import FolderKind, output_file, output_folder

MODEL = FolderKind("a model", "model.json", ("model.json", "*.npz"), lambda path: path.read_text() == "ours")


def model_folder(path, **options):
    return output_folder(path, MODEL, **options)


def refusal(function, *arguments, **keywords):
    with pytest.raises(UserError) as error:
        function(*arguments, **keywords)
    return str(error.value)


@pytest.mark.parametrize("output", [output_file, model_folder])
def test_a_new_place_is_given_back_and_nothing_is_made(output, tmp_path):
    path = tmp_path / "new" / "below"
    assert output(os.fspath(path), overwrite=False) == path
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_kept_without_overwrite_and_the_line_says_how_to_ask_for_it(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for output, path in ((output_file, tmp_path / "file"), (model_folder, tmp_path / "folder")):
        assert refusal(output, path, overwrite=False).startswith(f"{path}: exists, expected a new ")
        assert refusal(output, path, overwrite=False).endswith(", or overwrite=True")
        assert refusal(output, path, overwrite=False, flag="--out=x").endswith(", or --overwrite")
        assert refusal(output, path, overwrite=False, flag="--out=x").startswith("--out=x: exists")
        assert output(path, overwrite=True) == path


def test_a_folder_is_no_file_and_a_file_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert "found a folder, expected a file" in refusal(output_file, tmp_path, overwrite=True)
    assert "found a file, expected a folder" in refusal(model_folder, tmp_path / "file", overwrite=True)


def test_a_folder_of_another_kind_or_that_holds_anything_else_is_never_replaced(tmp_path):
    (tmp_path / "a.npz").write_text("")
    assert "holds no model.json of a model" in refusal(model_folder, tmp_path, overwrite=True)
    (tmp_path / "model.json").write_text("theirs")
    assert "holds no model.json of a model" in refusal(model_folder, tmp_path, overwrite=True)
    (tmp_path / "model.json").write_text("ours")
    assert model_folder(tmp_path, overwrite=True) == tmp_path
    (tmp_path / "notes.txt").write_text("mine")
    assert "holds notes.txt beside a model" in refusal(model_folder, tmp_path, overwrite=True)


@pytest.mark.parametrize("output", [output_file, model_folder])
def test_a_place_that_cannot_be_written_to_is_refused(output, tmp_path):
    # Nobody, not even root, can make a file there.
    assert "/proc cannot be written to (" in refusal(output, pathlib.Path("/proc/none/a"), overwrite=False)
    (tmp_path / "file").write_text("")
    line = refusal(output, tmp_path / "file" / "a", overwrite=False, flag="--out=a")
    assert line.startswith(f"--out=a: {tmp_path / 'file'} cannot be written to (Not a directory)")
