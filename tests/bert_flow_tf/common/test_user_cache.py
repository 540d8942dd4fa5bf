"""Folders of the cache are built once, from verified downloads."""

import os
import signal
import subprocess
import sys
import threading
import zipfile

import pytest

from bert_flow_tf.common import atomic
from bert_flow_tf.common.atomic import locked, new_folder
from bert_flow_tf.common.reading import file_digest
from bert_flow_tf.common.user_cache import cache_root, cached_folder, downloaded
from tests.refusals import small_disk, user_error

_WANTED = {"size": 83_506_384, "what": "demo", "instead": "do without"}


def test_a_folder_is_built_once_also_by_two_at_once(tmp_path, monkeypatch):
    found, builds, waiting = [], [], threading.Event()
    # The second builder logs that it waits.
    monkeypatch.setattr(atomic.logger, "info", lambda *_: waiting.set())

    def build(folder):
        builds.append(folder)
        assert waiting.wait(60)
        with new_folder(folder) as new:
            (new / "built.txt").touch()

    def find():
        found.append(cached_folder(tmp_path / "key", "built.txt", build))

    threads = [threading.Thread(target=find) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    find()
    assert found == [tmp_path / "key"] * 3 and len(builds) == 1
    with user_error("/proc/none", "is not writable"):
        cached_folder(cache_root("/proc/none") / "key", "built.txt", build)


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel `tiny` 0.1, the only one that pip finds."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "index" / "tiny-0.1-py3-none-any.whl"
    path.parent.mkdir()
    for name, value in (
        ("CONFIG_FILE", "/dev/null"),
        ("NO_INDEX", "1"),
        ("FIND_LINKS", str(path.parent)),
    ):
        monkeypatch.setenv(f"PIP_{name}", value)
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr(
            "tiny-0.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 0.1\n"
        )
        opened.writestr(
            "tiny-0.1.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        opened.writestr("tiny-0.1.dist-info/RECORD", "")
    return path


def test_a_download_is_announced_and_removed_after_the_block(wheel, tmp_path, capsys):
    digest = file_digest(wheel)
    with downloaded("tiny==0.1", digest, tmp_path / "place", **_WANTED) as path:
        assert path.name == wheel.name and file_digest(path) == digest
    out, said = capsys.readouterr()
    assert out == "" and said.startswith("downloading demo (tiny==0.1 ") and said.count("\n") == 1
    assert "83.5 MB" in said and f"{tmp_path / 'place'}\n" in said
    problem = (
        "demo: tiny==0.1 cannot be downloaded (",
        digest,
        f"expected {'0' * 64}",
        "do without",
    )
    with user_error(*problem), downloaded("tiny==0.1", "0" * 64, tmp_path / "place", **_WANTED):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


KILLED = """
import os, pathlib, signal, sys
from bert_flow_tf.common.atomic import locked
from bert_flow_tf.common.user_cache import downloaded
place = pathlib.Path(sys.argv[2])
with locked(place), downloaded("tiny==0.1", sys.argv[1], place, size=1, what="", instead=""):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_killed_process_and_a_full_disk(wheel, tmp_path):
    place, digest = tmp_path / "place", file_digest(wheel)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, digest, place], env=os.environ, check=False
    )
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.rglob(wheel.name))) == 2
    with (
        user_error("no space left"),
        locked(place),
        downloaded("tiny==0.1", digest, place, **_WANTED) as path,
        small_disk(100),
    ):
        path.with_name("unpacked").write_bytes(bytes(10_000))
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
