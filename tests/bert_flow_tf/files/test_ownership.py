"""One owner of a place at a time, and nothing left of those that were killed."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files import ownership
from bert_flow_tf.files.ownership import owned, sweep
from tests.refusals import user_error

HOLD = """
import sys, time
from bert_flow_tf.files import ownership
if sys.argv[2] == "lease":
    import errno, fcntl
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")
    fcntl.flock = refuse
    ownership.LEASE = 1.0
with ownership.owned(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def hold(path, kind="lock", seconds=60):
    """A process that owns the place."""
    command = [sys.executable, "-c", HOLD, str(path), kind, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture(params=["lock", "lease"])
def kind(request, monkeypatch):
    """Whether the file system has locks."""
    if request.param == "lease":

        def refuse(*arguments):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", refuse)
        monkeypatch.setattr(ownership, "LEASE", 1.0)
    return request.param


def test_another_process_is_refused_by_name_until_the_owner_ends(tmp_path, kind):
    place = tmp_path / "run"
    process = hold(place, kind)
    with user_error(f"{place}: process {process.pid} on "), owned(place):
        pass
    # A lease is renewed as long as its owner lives.
    time.sleep(1.5)
    with user_error(f"{place}: process {process.pid} on "), owned(place):
        pass
    process.kill()
    process.wait()
    with owned(place, wait=kind == "lease"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_one_who_waits_becomes_the_owner_when_the_first_ends(tmp_path, kind):
    process = hold(tmp_path / "entry", kind, seconds=0.5)
    with owned(tmp_path / "entry", wait=True):
        assert process.wait(timeout=5) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_owner_may_ask_again(tmp_path, kind):
    with owned(tmp_path / "a") as first, owned(tmp_path / "a") as second:
        assert second is first and first.found is None
    with owned(tmp_path / "a"):
        pass


def test_what_a_killed_owner_left_is_removed_and_what_it_was_replacing_is_there_again(tmp_path):
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
    place = tmp_path / "model"
    place.mkdir()
    (place / "kept").touch()
    (tmp_path / ".model.lock").touch()
    (tmp_path / ".other.01234567.bert_flow_part").mkdir()
    (tmp_path / ".other.bert_flow_lock").touch()
    done = subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not place.exists()
    with owned(place):
        assert (place / "kept").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.lock", "model"]


def test_sweeping_a_folder_leaves_what_is_owned(tmp_path):
    process = hold(tmp_path / "busy.json")
    for name in ("a.json", "a", "busy.json"):
        (tmp_path / f".{name}.01234567.bert_flow_part").touch()
    for name in ("b", "busy"):
        (tmp_path / f".{name}.bert_flow_lock").touch()
    sweep(tmp_path)
    process.kill()
    process.wait()
    assert {path.name for path in tmp_path.iterdir()} == {
        ".busy.json.01234567.bert_flow_part",
        ".busy.json.bert_flow_lock",
    }


def test_a_place_that_cannot_be_written_to_is_refused():
    with user_error("/proc: cannot be written to"), owned("/proc/none"):
        pass
    # Without a lock there that another user made.
    with pytest.raises(UserError, match=r"^/sys: cannot be written to \((?!No such file)"), owned("/sys/none"):
        pass


def test_a_place_that_no_path_leads_to_is_refused_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("link")
    with user_error(f"{tmp_path / 'link'}: found a link to itself"), owned(tmp_path / "link"):
        pass
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with user_error("new: cannot be found (No such file or directory)"), owned("new"):
        pass


def test_a_child_process_does_not_keep_the_lock(tmp_path):
    code = (
        "import os, subprocess, sys, time\nfrom bert_flow_tf.files.ownership import owned\n"
        "with owned(sys.argv[1]):\n"
        "    print(subprocess.Popen(['sleep', '60']).pid, flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "a")], stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    with owned(tmp_path / "a"):
        os.kill(child, signal.SIGKILL)
