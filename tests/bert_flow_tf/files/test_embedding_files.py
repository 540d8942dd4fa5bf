"""Embeddings written in parts are read again by the libraries of each format; a failed file is not there."""

import io
import os
import subprocess
import sys
import types

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf

from bert_flow_tf.files.embedding_files import embedding_writer
from tests.refusals import refusal

SENTENCES = ["A boat.", "", "東京"]
EMBEDDINGS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def write(path, file_format):
    with embedding_writer(path, file_format=file_format, width=4) as writer:
        writer(SENTENCES[:2], EMBEDDINGS[:2])
        writer(SENTENCES[2:], EMBEDDINGS[2:])


def test_npy_is_one_array(tmp_path):
    write(tmp_path / "e.npy", "npy")
    found = np.load(tmp_path / "e.npy", allow_pickle=False)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, EMBEDDINGS)
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy", mmap_mode="r"), EMBEDDINGS)
    with embedding_writer(tmp_path / "none.npy", file_format="npy", width=4):
        pass
    assert np.load(tmp_path / "none.npy").shape == (0, 4)


def test_parquet_has_sentence_and_embedding(tmp_path):
    write(tmp_path / "e.parquet", "parquet")
    table = pyarrow.parquet.read_table(tmp_path / "e.parquet")
    assert table.column("sentence").to_pylist() == SENTENCES
    np.testing.assert_array_equal(np.array(table.column("embedding").to_pylist(), np.float32), EMBEDDINGS)


def test_tfrecord_has_sentence_and_embedding(tmp_path):
    write(tmp_path / "e.tfrecord", "tfrecord")
    features = {"sentence": tf.io.FixedLenFeature([], tf.string), "embedding": tf.io.FixedLenFeature([4], tf.float32)}
    records = tf.data.TFRecordDataset(str(tmp_path / "e.tfrecord"))
    examples = [tf.io.parse_single_example(record, features) for record in records]
    assert [example["sentence"].numpy().decode() for example in examples] == SENTENCES
    np.testing.assert_array_equal([example["embedding"] for example in examples], EMBEDDINGS)


def test_standard_output_gets_the_whole_file(monkeypatch):
    stdout = types.SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr("sys.stdout", stdout)
    write("-", "npy")
    np.testing.assert_array_equal(np.load(io.BytesIO(stdout.buffer.getvalue())), EMBEDDINGS)


def test_a_failure_leaves_nothing_and_an_older_file_as_it_was(tmp_path):
    path = tmp_path / "e.out"
    path.write_text("older")
    with pytest.raises(ZeroDivisionError), embedding_writer(path, file_format="npy", width=4) as writer:
        writer(SENTENCES, EMBEDDINGS)
        raise ZeroDivisionError
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("e.out", "older")]


def test_a_full_disk_below_what_standard_output_gets_at_the_end_is_one_line(tmp_path):
    write_much = """
import resource
import numpy as np
from bert_flow_tf.errors import exit_status
from bert_flow_tf.files.embedding_files import embedding_writer

def run():
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))
    with embedding_writer("-", file_format="npy", width=4) as write:
        write([""] * 1000, np.zeros([1000, 4]))

raise SystemExit(exit_status(run))
"""
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", write_much]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ": no space left" in refusal(done.returncode, done.stderr, "temporary")
    assert list((tmp_path / "temporary").iterdir()) == []
