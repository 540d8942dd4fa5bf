"""Files and folders appear whole or not at all."""

import concurrent.futures
import os
import subprocess
import sys

import pytest

from bert_flow_tf.files import atomic
from bert_flow_tf.files.atomic import new_file, new_folder, new_output, write_atomically
from bert_flow_tf.files.outputs import FolderKind, output_folder
from bert_flow_tf.files.ownership import owned
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
    with user_error("file: cannot be made"), new_folder(tmp_path / "file" / "folder"):
        pass


@pytest.mark.parametrize("was_there", [False, True])
def test_what_somebody_else_makes_meanwhile_stays_and_the_result_has_another_name(tmp_path, was_there):
    if was_there:
        (tmp_path / "1").mkdir()
        (tmp_path / "a.json").write_text("old")
    with (
        user_error(f"{tmp_path}/1: another process", f"{tmp_path}/1.1"),
        new_folder(tmp_path / "1") as folder,
    ):
        (folder / "model").write_text("ours")
        if was_there:
            (tmp_path / "1").rename(tmp_path / "moved away")
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "model").write_text("theirs")
    with (
        user_error(f"{tmp_path}/a.json: another process", "a.json.1"),
        new_file(tmp_path / "a.json") as part,
    ):
        part.write_text("ours")
        (tmp_path / "other").write_text("theirs")
        (tmp_path / "other").rename(tmp_path / "a.json")
    for name, text in (("1", "theirs"), ("1.1", "ours")):
        assert (tmp_path / name / "model").read_text() == text
    assert (tmp_path / "a.json").read_text() == "theirs" and (tmp_path / "a.json.1").read_text() == "ours"
    assert not list(tmp_path.glob(".*"))


def test_nobody_can_write_between_the_check_of_an_output_and_its_folder(tmp_path, monkeypatch):
    def somebody_else():
        with user_error("is using it"), owned(tmp_path / "out"):
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
from bert_flow_tf.files import atomic, embedding_files
text = lambda path: path.write_text("x" * 10_000)
# So few bytes that the C library would write them when the file is closed, and say nothing.
array = lambda path: embedding_files.write_array(path, np.zeros(320))
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
        assert line.startswith(f"{path}: no space left, found ") and f" bytes free in {tmp_path}" in line
    assert list(tmp_path.iterdir()) == []
