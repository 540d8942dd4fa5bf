"""What an address names is read as a file is, and what is wrong with it is one line."""

import os
import time

import fsspec
import pyarrow.parquet
import pytest

from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.scale.shards import input_files
from tests.refusals import refused, user_error

SENTENCES = ["A boat.", "", "東京 – x", *(f"Sentence {i}." for i in range(20))]


@pytest.fixture
def memory():
    """Function (name, bytes) that makes a file of fsspec's in memory, of which nothing stays."""
    system = fsspec.filesystem("memory")
    yield lambda name, data: system.pipe_file(name, data)
    system.rm("/texts", recursive=True)


@pytest.fixture
def addresses(memory, tmp_path):
    """dict of the address of the sentences in each kind of file -> the same file here."""
    lines = "".join(f"{sentence}\n" for sentence in SENTENCES)
    (tmp_path / "x.txt").write_text(lines, encoding="utf-8")
    (tmp_path / "x.tsv").write_text("sentence\n" + lines, encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"sentence": SENTENCES}), tmp_path / "x.parquet")
    paths = sorted(tmp_path.iterdir())
    for path in paths:
        memory(f"/texts/{path.name}", path.read_bytes())
    return {f"memory:///texts/{path.name}": str(path) for path in paths}


def test_a_pattern_of_an_address_gives_the_files_and_their_shards(addresses):
    found = input_files("memory:///texts/*.*")
    assert [file.path.rpartition("/")[2] for file in found] == ["x.parquet", "x.tsv", "x.txt"]
    for remote, local in zip(found, input_files(list(addresses.values())), strict=True):
        assert list(remote.shards(7)) == list(local.shards(7))
    for address in addresses:
        assert list(read_sentences(address)) == SENTENCES
    with user_error("memory:///texts/*.jsonl: no such file"):
        input_files("memory:///texts/*.jsonl")


class _Store(fsspec.AbstractFileSystem):
    """Files of numbered lines, in blocks as S3's and HTTP's are; of `broken.txt` the first megabyte comes."""

    protocol = "numbers"
    contents = b"".join(b"line %d\n" % i for i in range(150_000))

    def _open(self, path, mode="rb", **options):
        store = self

        class File(fsspec.spec.AbstractBufferedFile):
            def _fetch_range(self, start, end):
                if start > 0 and path == "broken.txt":
                    # aiohttp's errors are of no kind that Python has.
                    raise LookupError("503: try again later")
                return store.contents[start:end]

        block_size = 100_000 if path == "broken.txt" else "default"
        return File(self, path, mode, size=len(self.contents), block_size=block_size)

    def info(self, path, **options):
        return {"name": path, "size": len(self.contents), "type": "file"}


@pytest.fixture
def store():
    fsspec.register_implementation("numbers", _Store, clobber=True)
    return _Store.contents.decode().splitlines()


def test_lines_cost_no_block_of_a_store_each(store):
    began = time.process_time()
    assert list(read_sentences("numbers://lines.txt")) == store
    # By fsspec itself, a megabyte for each line.
    assert time.process_time() - began < 1


def test_a_store_that_fails_while_a_file_is_read_is_one_line(store):
    lines = read_sentences("numbers://broken.txt")
    with user_error("numbers://broken.txt: cannot be read (LookupError: 503: try again later)"):
        list(lines)
    with user_error("numbers://broken.txt: cannot be read as Parquet: LookupError: 503: try again later"):
        list(read_sentences("numbers://broken.txt", file_format="parquet"))


def test_the_command_says_what_it_cannot_read(tmp_path):
    def said(address, out):
        command = "encode" if str(out).endswith(".npy") else "encode-folder"
        return refused(command, "--bert_hub", "demo", "--input", address, "--out", out, unchanged=tmp_path)

    missing = (tmp_path / "x.txt").as_uri()
    for out in (tmp_path / "out", tmp_path / "e.npy"):
        assert said(missing, out) == f"{missing}: no such file, expected one that can be read"
        assert "s9://b/x.txt: cannot be read (ValueError: Protocol not known: s9" in said("s9://b/x.txt", out)
    (tmp_path / "x.txt").write_text("w1\n")
    for out in ("s3://bucket/out", "s3://bucket/e.npy"):
        assert said(missing, out) == f"--out={out}: found an address, expected a path of this machine, mounted perhaps"
    assert not os.path.exists("s3:")
