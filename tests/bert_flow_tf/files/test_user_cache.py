"""Folders of the cache are built once, from verified downloads."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

import pytest

from bert_flow_tf.files.atomic import locked, new_folder
from bert_flow_tf.files.reading import file_digest
from bert_flow_tf.files.user_cache import cache_root, cached_folder, downloaded
from tests.file_server import served
from tests.refusals import small_disk, user_error

_WANTED = {"size": 83_506_384, "what": "demo", "instead": "do without"}


def test_a_folder_is_built_once_also_by_two_at_once(tmp_path):
    found, builds = [], []

    def build(folder):
        builds.append(folder)
        with new_folder(folder) as new:
            (new / "built.txt").touch()
        # Another builder that does not wait would build within this time.
        time.sleep(0.2)

    def find():
        found.append(cached_folder(tmp_path / "key", "built.txt", build))

    threads = [threading.Thread(target=find) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    find()
    assert found == [tmp_path / "key"] * 3 and len(builds) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    with user_error("/proc/none", "is not writable"):
        cached_folder(cache_root("/proc/none") / "key", "built.txt", build)


def test_environment_names_the_cache_unless_an_argument_does(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "environment"))
    assert cache_root() == tmp_path / "environment"
    assert cache_root(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.delenv("BERT_FLOW_CACHE")
    assert cache_root().name == "bert_flow_tf"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Folder of files that are the only ones that pip finds."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "index"
    folder.mkdir()
    values = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_RETRIES": "0"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def wheel(index):
    """A wheel `tiny` 0.1."""
    path = index / "tiny-0.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("tiny-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 0.1\n")
        opened.writestr("tiny-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        opened.writestr("tiny-0.1.dist-info/RECORD", "")
    return path


def test_a_download_is_announced_and_removed_after_the_block(wheel, tmp_path, monkeypatch, capsys):
    simple = tmp_path / "index" / "simple" / "tiny"
    simple.mkdir(parents=True)
    digest = file_digest(wheel.rename(simple / wheel.name))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    with served(tmp_path / "index") as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        with downloaded("tiny==0.1", digest, tmp_path / "place", **_WANTED) as path:
            assert path.name == wheel.name and file_digest(path) == digest
    out, said = capsys.readouterr()
    assert out == "" and said.startswith("downloading demo (tiny==0.1 ") and said.count("\n") == 1
    assert "83.5 MB" in said and f"{tmp_path / 'place'}\n" in said
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_what_cannot_be_downloaded_is_one_line(index, tmp_path):
    problem = ("demo: tiny==0.1 cannot be downloaded (", f"expected {'0' * 64}", "do without")
    with user_error(*problem), downloaded("tiny==0.1", "0" * 64, tmp_path / "place", **_WANTED):
        pass
    # A source distribution is compared before its set-up, which would leave a file, is run.
    with tarfile.open(index / "tiny-0.1.tar.gz", "w:gz") as opened:
        setup = f"open({str(tmp_path / 'was_run')!r}, 'w').close()\n".encode()
        member = tarfile.TarInfo("tiny-0.1/setup.py")
        member.size = len(setup)
        opened.addfile(member, io.BytesIO(setup))
    found = file_digest(index / "tiny-0.1.tar.gz")
    with user_error(found, *problem), downloaded("tiny==0.1", "0" * 64, tmp_path / "place", **_WANTED):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


KILLED = """
import os, pathlib, signal, sys
from bert_flow_tf.files.atomic import locked
from bert_flow_tf.files.user_cache import downloaded
place = pathlib.Path(sys.argv[2])
with locked(place), downloaded("tiny==0.1", sys.argv[1], place, size=1, what="", instead=""):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_killed_process_and_a_full_disk(wheel, tmp_path):
    place, digest = tmp_path / "place", file_digest(wheel)
    done = subprocess.run([sys.executable, "-c", KILLED, digest, place], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.rglob(wheel.name))) == 2
    with (
        user_error("no space left"),
        locked(place),
        downloaded("tiny==0.1", digest, place, **_WANTED) as path,
        small_disk(100),
    ):
        path.with_name("unpacked").write_bytes(bytes(10_000))
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
