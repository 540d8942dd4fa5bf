"""Folders of the cache: built once, whoever builds first."""

import threading
import time

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_folder
from bert_flow_tf.files.user_cache import cache_root, cached_folder


def write(folder):
    with new_folder(folder) as new:
        (new / "built.txt").write_text("built")


def test_second_call_builds_nothing(tmp_path):
    builds = []

    def build(folder):
        builds.append(folder)
        write(folder)

    for _ in range(2):
        assert cached_folder(tmp_path / "key", "built.txt", build) == tmp_path / "key"
    assert builds == [tmp_path / "key"]
    cached_folder(tmp_path / "key", "built.txt", build)
    assert list(tmp_path.iterdir()) == [tmp_path / "key"]


def test_of_two_builders_at_once_the_second_waits_for_the_first(tmp_path):
    found, builds = [], []

    def build(folder):
        builds.append(folder)
        write(folder)
        time.sleep(0.5)

    def find():
        found.append(cached_folder(tmp_path / "key", "built.txt", build))

    threads = [threading.Thread(target=find) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "key"] * 2 and len(builds) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_cache_that_cannot_be_written_to_is_one_line():
    with pytest.raises(UserError, match="cannot be written to"):
        cached_folder(cache_root("/proc/none"), "built.txt", write)


def test_environment_names_the_cache_unless_an_argument_does(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "environment"))
    assert cache_root() == tmp_path / "environment"
    assert cache_root(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.delenv("BERT_FLOW_CACHE")
    assert cache_root().name == "bert_flow_tf"
