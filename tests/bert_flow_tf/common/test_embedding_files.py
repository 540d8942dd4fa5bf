"""Each format's library reads embeddings that were written in parts."""

import io
import types

import numpy as np
import pyarrow.parquet

from bert_flow_tf.common.embedding_files import embedding_writer
from tests.refusals import small_disk, user_error

SENTENCES = ["A boat.", "", "東京"]
EMBEDDINGS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def write(path, file_format):
    with embedding_writer(path, file_format=file_format, width=4) as writer:
        writer(SENTENCES[:2], EMBEDDINGS[:2])
        writer(SENTENCES[2:], EMBEDDINGS[2:])


def test_parquet_has_sentence_and_embedding(tmp_path):
    write(tmp_path / "e.parquet", "parquet")
    table = pyarrow.parquet.read_table(tmp_path / "e.parquet")
    assert table.column("sentence").to_pylist() == SENTENCES
    np.testing.assert_array_equal(
        np.array(table.column("embedding").to_pylist(), np.float32), EMBEDDINGS
    )


def test_npy_is_one_array_also_on_standard_output(monkeypatch, tmp_path):
    stdout = types.SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write("-", "npy")
    np.testing.assert_array_equal(
        np.load(io.BytesIO(stdout.buffer.getvalue())), EMBEDDINGS, strict=True
    )
    # It is kept in a temporary file until then, for which there may be no room.
    writing = embedding_writer("-", file_format="npy", width=4)
    with user_error(str(tmp_path), "no space left"), small_disk(5_000), writing as writer:
        writer([""] * 1000, np.zeros([1000, 4]))
    assert list(tmp_path.iterdir()) == []
    with embedding_writer(tmp_path / "none.npy", file_format="npy", width=4):
        pass
    assert np.load(tmp_path / "none.npy").shape == (0, 4)
