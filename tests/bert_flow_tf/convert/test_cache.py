"""The cache of converted encoders: built once, whole or not at all."""

import threading

import pytest

from bert_flow_tf.convert.cache import cache_root, cached_encoder


def write(folder, content="built"):
    folder.mkdir()
    (folder / "source.json").write_text(content)


def test_second_call_builds_nothing(tmp_path):
    builds = []

    def build(folder):
        builds.append(folder)
        write(folder)

    assert cached_encoder(tmp_path / "key", build) == cached_encoder(tmp_path / "key", build) == tmp_path / "key"
    assert len(builds) == 1


def test_two_builders_at_once_both_end_with_one_whole_folder(tmp_path):
    both_building = threading.Barrier(2, timeout=60)
    found = []

    def build(folder):
        both_building.wait()
        write(folder)

    threads = [threading.Thread(target=lambda: found.append(cached_encoder(tmp_path / "key", build))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "key"] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert (tmp_path / "key" / "source.json").read_text() == "built"


def test_failed_build_leaves_nothing(tmp_path):
    def build(folder):
        write(folder)
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        cached_encoder(tmp_path / "key", build)
    assert list(tmp_path.iterdir()) == []


def test_environment_names_the_cache_unless_an_argument_does(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "environment"))
    assert cache_root() == tmp_path / "environment"
    assert cache_root(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.delenv("BERT_FLOW_CACHE")
    assert cache_root().name == "bert_flow_tf"
