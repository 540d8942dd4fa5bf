"""Files of a package index: only those with the right digest are given, and none is left over."""

import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
import tarfile

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import locked
from bert_flow_tf.files.reading import file_digest
from bert_flow_tf.files.user_cache import downloaded
from tests.file_server import served
from tests.refusals import user_error

_WANTED = {"size": 83_506_384, "what": "demo", "instead": "do without"}


@pytest.fixture(autouse=True)
def no_other_index(monkeypatch):
    # Port 9 of this machine refuses connections.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A source distribution `tiny` 0.1 whose set-up, if it is run, leaves a file; the index has it alone."""
    folder = tmp_path / "index"
    folder.mkdir()
    path, setup = folder / "tiny-0.1.tar.gz", f"open({str(tmp_path / 'was_run')!r}, 'w').close()\n".encode()
    with tarfile.open(path, "w:gz") as opened:
        member = tarfile.TarInfo("tiny-0.1/setup.py")
        member.size = len(setup)
        opened.addfile(member, io.BytesIO(setup))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return path


@pytest.fixture
def wheel(archive):
    """A wheel of the same, which needs no set-up."""
    archive.unlink()
    path = archive.with_name("tiny-0.1-py3-none-any.whl")
    make = """
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("tiny-0.1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 0.1\\n")
    wheel.writestr("tiny-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("tiny-0.1.dist-info/RECORD", "")
"""
    subprocess.run([sys.executable, "-c", make, path], check=True)
    return path


def test_a_download_says_first_what_it_is_how_much_and_where_it_is_kept(wheel, tmp_path, monkeypatch, capsys):
    simple = tmp_path / "simple" / "tiny"
    simple.mkdir(parents=True)
    wheel.rename(simple / wheel.name)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    with served(tmp_path) as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        digest = file_digest(simple / wheel.name)
        with downloaded("tiny==0.1", digest, tmp_path / "place", **_WANTED) as path:
            assert file_digest(path) == digest
    line = f"downloading demo (tiny==0.1 of the package index), 83.5 MB, once; kept in {tmp_path / 'place'}\n"
    assert capsys.readouterr() == ("", line)


def test_the_file_is_there_within_the_block_and_nothing_after_it(wheel, tmp_path):
    digest = file_digest(wheel)
    with downloaded("tiny==0.1", digest, tmp_path / "place", **_WANTED) as path:
        assert path.name == wheel.name and file_digest(path) == digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


def test_another_file_is_refused_before_anything_of_it_is_run(archive, tmp_path):
    with (
        user_error("demo: tiny==0.1 cannot be downloaded", file_digest(archive), f"expected {'0' * 64}; do without"),
        downloaded("tiny==0.1", "0" * 64, tmp_path / "place", **_WANTED),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


def test_an_index_out_of_reach_is_one_line(tmp_path):
    line = "demo: tiny==0.1 cannot be downloaded ("
    with pytest.raises(UserError) as raised, downloaded("tiny==0.1", "0" * 64, tmp_path / "place", **_WANTED):
        pass
    assert str(raised.value).startswith(line) and str(raised.value).endswith("; do without")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_line(wheel, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with user_error("no space left"), contextlib.ExitStack() as stack:
        path = stack.enter_context(downloaded("tiny==0.1", file_digest(wheel), tmp_path / "place", **_WANTED))
        stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        path.with_name("unpacked").write_bytes(bytes(10_000))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


def test_what_a_killed_process_left_is_removed_with_the_next_ones(wheel, tmp_path):
    killed = """
import os, signal, sys
from bert_flow_tf.files.atomic import locked
from bert_flow_tf.files.user_cache import downloaded
with locked(sys.argv[2]), downloaded("tiny==0.1", sys.argv[1], sys.argv[2], size=1, what="", instead=""):
    os.kill(os.getpid(), signal.SIGKILL)
""".replace("sys.argv[2]", "pathlib.Path(sys.argv[2])").replace("import os,", "import os, pathlib,")
    place = tmp_path / "place"
    command = [sys.executable, "-c", killed, file_digest(wheel), place]
    done = subprocess.run(command, env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.rglob(wheel.name))) == 2
    with locked(place), downloaded("tiny==0.1", file_digest(wheel), place, **_WANTED):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]
