"""One writer of a path at a time, and nothing left of those that were killed."""

import os
import signal
import subprocess
import sys
import threading

from bert_flow_tf.files.atomic import locked
from tests.refusals import user_error

HOLD = """
import subprocess, sys, time
from bert_flow_tf.files.atomic import locked
with locked(sys.argv[1]):
    print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path, seconds=60.0):
    """Return a process that has locked the path, and the id of a child of it."""
    command = [sys.executable, "-c", HOLD, str(path), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def test_second_process_is_an_error_until_the_first_ends(tmp_path):
    path = tmp_path / "run"
    process, child = hold(path)
    with user_error(f"{path}: another process is using it"), locked(path):
        pass
    process.kill()
    process.wait()
    with locked(path):
        pass
    os.kill(child, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_waiting_process_gets_the_lock(tmp_path):
    process, child = hold(tmp_path / "entry", seconds=0.5)
    with locked(tmp_path / "entry", wait=True):
        assert process.wait(timeout=5) == 0
    os.kill(child, signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_thread_may_lock_again_and_another_may_not(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    errors = []

    def other():
        with user_error("another process is using it"), locked(tmp_path / "a"):
            pass
        errors.append(None)

    with locked(tmp_path / "a"), locked(tmp_path / "link" / "a"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert errors == [None]
    with locked(tmp_path / "a"):
        pass


def test_next_writer_restores_what_a_killed_one_was_replacing(tmp_path):
    code = """
import os, pathlib, signal, sys
from bert_flow_tf.files import atomic
rename = pathlib.Path.rename
def rename_and_die(self, target):
    rename(self, target)
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.rename = rename_and_die
with atomic.new_folder(sys.argv[1]) as folder:
    (folder / "new").touch()
"""
    path = tmp_path / "model"
    path.mkdir()
    (path / "kept").touch()
    (tmp_path / ".other.tmp").touch()
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    with locked(path):
        assert (path / "kept").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.tmp", "model"]


def test_folder_that_cannot_be_written_is_an_error():
    with user_error("/sys: cannot be written to"), locked("/sys/none"):
        pass
