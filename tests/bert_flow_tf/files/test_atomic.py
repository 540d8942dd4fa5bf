"""Files and folders appear whole or not at all."""

import concurrent.futures
import contextlib
import os
import subprocess
import sys

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files import atomic
from bert_flow_tf.files.atomic import (
    FolderKind,
    locked,
    new_file,
    new_folder,
    new_output,
    output_file,
    output_folder,
    write_atomically,
)
from tests.refusals import user_error


def test_text_replaces_what_was_there_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.json"
    for text in ("first", "second"):
        write_atomically(path, text)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
    before = os.umask(0o027)
    write_atomically(path, "third")
    os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_folder_takes_its_name_when_the_block_ends_and_replaces_the_one_of_that_name(tmp_path):
    path = tmp_path / "above" / "folder"
    for name in ("old", "new"):
        with new_folder(path) as folder:
            (folder / name).write_text("")
            assert not (path / name).exists()
        assert list(path.parent.rglob("*")) == [path, path / name]


@pytest.mark.parametrize("parent", ["", "above/further"])
def test_a_block_that_fails_leaves_everything_as_it_was(tmp_path, parent):
    (tmp_path / "kept").mkdir()
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / parent / "kept") as folder:
        (folder / "a").write_text("new")
        raise ZeroDivisionError
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with user_error("file: cannot be written"), new_folder(tmp_path / "file" / "folder"):
        pass


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_link_is_replaced_and_its_target_stays(tmp_path, new):
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    with new(tmp_path / "link"):
        pass
    assert not (tmp_path / "link").is_symlink() and (tmp_path / "target").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"link", "target"}


@pytest.mark.parametrize("name", [".out.lock", ".out.tmp", ".out.replaced"])
def test_nothing_is_written_through_a_link_beside(tmp_path, name):
    (tmp_path / name).symlink_to("target")
    with contextlib.suppress(UserError):
        write_atomically(tmp_path / "out", "text")
    assert not (tmp_path / "target").exists()


def test_nobody_can_write_between_the_check_of_an_output_and_its_folder(tmp_path, monkeypatch):
    def somebody_else():
        with user_error("is using it"), locked(tmp_path / "out"):
            pass

    def check(*arguments, **options):
        try:
            return output_folder(*arguments, **options)
        finally:
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                thread.submit(somebody_else).result()

    monkeypatch.setattr(atomic, "output_folder", check)
    kind = FolderKind("a folder", "marker", ("marker",))
    with new_output(tmp_path / "out", kind, overwrite=False) as folder:
        (folder / "marker").write_text("")
    with user_error("out: exists, expected"), new_output(tmp_path / "out", kind, overwrite=False):
        pass


WRITE = """
import pathlib, resource, shutil, sys
import numpy as np
from bert_flow_tf.errors import UserError
from bert_flow_tf.files import atomic
text = lambda path: path.write_text("x" * 10_000)
array = lambda path: np.save(path.open("wb"), np.zeros(32_000))
folder = lambda path: text(path / "a")
copied = lambda path: shutil.copyfile(sys.executable, path / "a")
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
of_files, of_folders = (atomic.new_file, (text, array)), (atomic.new_folder, (folder, copied))
for write, new in ((write, new) for new, writes in (of_files, of_folders) for write in writes):
    try:
        with new(sys.argv[1]) as part:
            write(part)
    except UserError as error:
        print(error)
"""


def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    done = subprocess.run([sys.executable, "-c", WRITE, str(path)], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    for line in lines:
        assert line.startswith(f"{path}: no space left")
    assert list(tmp_path.iterdir()) == []


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
    (tmp_path / "file").write_text("")
    line = refusal(output, tmp_path / "file" / "a", overwrite=False, flag="--out=a")
    assert line.startswith(f"--out=a: {tmp_path / 'file'} cannot be written to")
