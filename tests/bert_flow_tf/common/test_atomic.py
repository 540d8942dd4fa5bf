"""Files and folders appear whole, from one process at a time."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from bert_flow_tf.common import atomic
from bert_flow_tf.common.atomic import (
    FolderKind,
    locked,
    new_file,
    new_folder,
    new_output,
    output_file,
    output_folder,
    write_atomically,
)
from bert_flow_tf.common.errors import UserError
from tests.refusals import small_disk, user_error

MODEL = FolderKind(
    "a model", "model.json", ("model.json", "*.npz"), lambda path: path.read_text() == "ours"
)


def model_folder(path, **options):
    return output_folder(path, MODEL, **options)


def lock_elsewhere(path):
    """Lock a path in another thread, which must fail."""

    def lock():
        with user_error(f"{path}: another process is using it"), locked(path):
            pass

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        threads.submit(lock).result()


def test_a_file_replaces_what_was_there_and_leaves_nothing(tmp_path):
    path = tmp_path / "a.json"
    for text in ("first", "second"):
        write_atomically(path, text)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
    before = os.umask(0o027)
    write_atomically(path, "third")
    os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_folder_gets_its_name_when_the_block_ends(tmp_path):
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


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_link_is_replaced_and_its_target_stays(tmp_path, new):
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


def test_nobody_writes_between_an_outputs_check_and_its_folder(tmp_path, monkeypatch):
    def check(path, *arguments, **options):
        lock_elsewhere(path)
        return output_folder(path, *arguments, **options)

    monkeypatch.setattr(atomic, "output_folder", check)
    with new_output(tmp_path / "out", MODEL, overwrite=False):
        pass
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize(
    ("new", "write"),
    [
        (new_file, lambda path: np.save(path.open("wb"), np.zeros(32_000))),
        (new_folder, lambda path: (path / "a").write_text("x" * 10_000)),
    ],
)
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, new, write):
    with (
        user_error(f"{tmp_path / 'a'}: no space left"),
        small_disk(2_000),
        new(tmp_path / "a") as part,
    ):
        write(part)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_may_not_be_written_is_named(tmp_path):
    file, folder, new = tmp_path / "file", tmp_path / "folder", tmp_path / "new" / "below"
    file.write_text("")
    folder.mkdir()
    for output, path in ((output_file, file), (model_folder, folder)):
        assert (
            output(os.fspath(new), overwrite=False) == new and output(path, overwrite=True) == path
        )
        for flag, wanted in ((None, "overwrite=True"), ("--out=x", "--overwrite")):
            with user_error(f"{flag or path}: exists", wanted):
                output(path, overwrite=False, flag=flag)
        with user_error(f"--out=a: {file} is not a writable folder"):
            output(file / "a", overwrite=False, flag="--out=a")
    with user_error("found a folder"):
        output_file(folder, overwrite=True)
    with user_error("found a file"):
        model_folder(file, overwrite=True)
    with user_error("/sys: is not writable"), locked("/sys/none"):
        pass
    assert not new.parent.exists()


def test_overwrite_replaces_no_folder_of_another_kind(tmp_path):
    for name, text, found in (
        ("a.npz", "", "holds no model.json of a model"),
        ("model.json", "theirs", "holds no model.json of a model"),
        ("model.json", "ours", None),
        ("notes.txt", "mine", "holds notes.txt"),
    ):
        (tmp_path / name).write_text(text)
        with user_error(found) if found else contextlib.nullcontext():
            model_folder(tmp_path, overwrite=True)


def test_a_thread_may_lock_again_and_another_may_not(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with locked(tmp_path / "a"), locked(tmp_path / "link" / "a"):
        lock_elsewhere(tmp_path / "a")
    with locked(tmp_path / "a"):
        pass


DIE = """
import os, pathlib, signal, subprocess, sys
from bert_flow_tf.common.atomic import new_folder
rename = pathlib.Path.rename
def rename_and_die(self, target):
    rename(self, target)
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.rename = rename_and_die
with new_folder(sys.argv[1]) as folder:
    (folder / "new").touch()
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_gives_back_lock_and_folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "kept").touch()
    (tmp_path / ".other.tmp").touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", DIE, str(path)], **pipes) as process:
        child = int(process.stdout.readline())
        with user_error(f"{path}: another process is using it"), locked(path):
            pass
    assert process.returncode == -signal.SIGKILL and not path.exists()
    # A process that it started goes on, and holds no lock.
    with locked(path):
        assert (path / "kept").is_file()
    os.kill(child, signal.SIGKILL)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.tmp", "model"]


def test_processes_that_lock_below_a_missing_folder_all_succeed(tmp_path):
    code = "import sys; from bert_flow_tf.common.atomic import locked\n"
    code += "for _ in range(200):\n    with locked(sys.argv[1], wait=True):\n        pass"
    command = [sys.executable, "-c", code, str(tmp_path / "missing" / "deep" / "x.json")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(5)]
    assert [process.communicate()[1] for process in running] == [""] * 5


def test_locks_in_a_folder_that_nobody_holds_are_removed(tmp_path):
    (tmp_path / ".left.json.lock").touch()
    with locked(tmp_path / "held.json"), locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".held.json.lock"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_files_of_a_new_folder_have_the_modes_of_the_umask(tmp_path, umask, mode):
    old = os.umask(umask)
    try:
        with new_folder(tmp_path / "model") as folder:
            (folder / "part").mkdir()
            safetensors.numpy.save_file({"a": np.zeros(2)}, folder / "part" / "a.safetensors")
            (folder / "secret.txt").touch(0o600)
    finally:
        os.umask(old)
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {mode} and len(files) == 2
