"""Every format gives the sentences that were written, and every mistake in a file is named with its line."""

import csv
import gzip
import io
import json
import os
import threading
import time
import types

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from bert_flow_tf.files import sentence_files
from bert_flow_tf.files.sentence_files import read_sentences, read_tables
from bert_flow_tf.scale.shards import input_files
from tests.refusals import refused, user_error

# An empty one, one with quotes, one of two scripts.
SENTENCES = ["A boat.", "", 'She said "now".', "東京 in spring"]
OTHERS = ["one", "two", "three", "four"]


@pytest.fixture
def files(tmp_path):
    """dict of format -> path of a file with the columns `sentence` and `other`."""
    (tmp_path / "s.txt").write_text("".join(f"{sentence}\n" for sentence in SENTENCES), encoding="utf-8")
    rows = list(zip(SENTENCES, OTHERS, strict=True))
    lines = ["sentence\tother", *("\t".join(row) for row in rows)]
    (tmp_path / "s.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with open(tmp_path / "s.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence", "other"), *rows])
    records = [json.dumps({"sentence": a, "other": b}) for a, b in rows]
    (tmp_path / "s.jsonl").write_text("\n".join(records), encoding="utf-8")
    table = pyarrow.table({"other": OTHERS, "sentence": SENTENCES})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet", row_group_size=3)
    return {path.suffix: path for path in tmp_path.iterdir()}


@pytest.mark.parametrize("ending", [".txt", ".tsv", ".csv", ".jsonl", ".parquet"])
def test_sentences_come_as_they_were_written(files, ending):
    assert list(read_sentences(files[ending])) == SENTENCES


@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl", ".parquet"])
def test_columns_are_named_and_several_come_together(files, ending):
    assert list(read_sentences(files[ending], columns=["other"])) == OTHERS
    pairs = [[b, a] for a, b in zip(SENTENCES, OTHERS, strict=True)]
    assert list(read_sentences(files[ending], columns=["other", "sentence"])) == pairs


@pytest.mark.parametrize("ending", [".tsv", ".csv"])
def test_a_column_of_a_file_without_names_has_a_number(files, ending):
    assert list(read_sentences(files[ending], columns=["2"])) == ["other", *OTHERS]


def test_quotes_in_csv_hold_commas_newlines_and_quotes(tmp_path):
    text = 'id,sentence\r\n1,"A boat, say."\r\n\r\n2,"two\nlines, a ""quote"""\n3,""\n4,open'
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert list(read_sentences(tmp_path / "s.csv.gz")) == ["A boat, say.", 'two\nlines, a "quote"', "", "open"]


@pytest.mark.parametrize("ending", [".txt", ".parquet"])
def test_standard_input_is_read(files, ending, monkeypatch):
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(files[ending].read_bytes())))
    file_format = sentence_files.INPUT_FORMATS[ending] if ending != ".txt" else None
    assert list(read_sentences("-", file_format=file_format)) == SENTENCES


def test_a_file_of_one_byte_order_mark_is_empty(tmp_path):
    (tmp_path / "s.txt").write_bytes(b"\xef\xbb\xbf")
    assert list(read_sentences(tmp_path / "s.txt")) == []


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "s.tsv").write_bytes(b"\xef\xbb\xbfsentence\ta\nfirst\t1\n")
    assert list(read_sentences(tmp_path / "s.tsv")) == ["first"]


def test_file_is_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_files, "_BLOCK", 64)
    (tmp_path / "s.jsonl").write_text(100 * '{"sentence": "a"}\n' + "broken\n")
    sentences = read_sentences(tmp_path / "s.jsonl")
    assert [next(sentences) for _ in range(50)] == 50 * ["a"]
    with user_error("s.jsonl: cannot be read as sentences in jsonl"):
        list(sentences)


def test_tables_have_so_many_rows_and_keep_types(files, tmp_path):
    (tmp_path / "n.jsonl").write_text("".join(f'{{"n": {i}, "sentence": "w{i}"}}\n' for i in range(5)))
    tables = list(read_tables(tmp_path / "n.jsonl", file_format="jsonl", column=None, kept=["n"], rows=2))
    assert [sentences for sentences, _ in tables] == [["w0", "w1"], ["w2", "w3"], ["w4"]]
    assert [table.to_pydict() for _, table in tables] == [{"n": [0, 1]}, {"n": [2, 3]}, {"n": [4]}]
    for ending in (".tsv", ".csv", ".jsonl", ".parquet"):
        options = {"file_format": ending[1:], "column": None, "kept": ["other"], "rows": 3}
        (first, kept), (last, _) = read_tables(files[ending], **options)
        assert first + last == SENTENCES and kept.column("other").to_pylist() == OTHERS[:3]


@pytest.mark.parametrize(
    ("name", "content", "columns", "found"),
    [
        ("s.txt", b"good\nb\xffd\n", None, ["s.txt", "utf-8"]),
        ("s.txt", b"good\n", ["other"], ["no column other, expected one of sentence"]),
        ("s.tsv", b"a\tsentenc\n1\t2\n", None, ["no column sentence", "a, sentenc", "did you mean sentenc?"]),
        ("s.tsv", b"a\tsentence\n1\n", None, ["found the line ['1'], expected 2"]),
        ("s.csv", b"", None, ["Empty CSV"]),
        ("s.csv", b"a,b\n1,2\n", None, ["'sentence'", "does not exist"]),
        ("s.csv", b"a,b\n1,2\n", ["3"], ["f2", "does not exist"]),
        ("s.csv", b"sentence\nHello, world\n", None, ["Row #2", "Expected 1 columns, got 2"]),
        ("s.csv", b"sentence,id\na,1\nHello, world,3\n", None, ["Row #3", "Hello, world,3"]),
        ("s.csv", b'sentence\n"a\n\xff"\n', None, ["UTF8"]),
        ("s.jsonl", b'{"text": "x"}\n', None, ["row 1", "sentence"]),
        ("s.jsonl", b'{"sentence": "a"}\n{"text": "x"}\n', None, ["row 2", "sentence"]),
        ("s.jsonl", b'{"sentence": 3}\n', None, ["sentence", "number"]),
        ("s.jsonl", b'{"sentence": "a"}\nbroken\n', None, ["Invalid value", "row 1"]),
        ("s.jsonl", b"[1]\n", None, ["array"]),
        ("s.parquet", b"no parquet", None, ["cannot be read as sentences in parquet"]),
        ("s.doc", b"", None, ["'.doc'", ".parquet", "--input_format"]),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, columns, found):
    (tmp_path / name).write_bytes(content)
    with user_error(*found):
        list(read_sentences(tmp_path / name, columns=columns))


def test_missing_files_and_odd_values_are_named(tmp_path, files):
    for name in ("none.txt", "none.parquet"):
        with user_error(f"{name}: no such file"):
            read_sentences(tmp_path / name)
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["a", None]}), tmp_path / "null.parquet")
    with user_error("null.parquet, row 2: sentence"):
        list(read_sentences(tmp_path / "null.parquet"))
    pyarrow.parquet.write_table(pyarrow.table({"sentence": [1]}), tmp_path / "int.parquet")
    with user_error("int.parquet: sentence: found int64"):
        list(read_sentences(tmp_path / "int.parquet"))
    bad = pyarrow.array([b"caf\xe9"]).cast(pyarrow.string(), safe=False)
    pyarrow.parquet.write_table(pyarrow.table({"sentence": bad}), tmp_path / "bytes.parquet")
    with user_error("bytes.parquet: cannot be read as sentences in parquet: "):
        list(read_sentences(tmp_path / "bytes.parquet"))


LINES = ["A boat.", "", "東京 – x", *(f"Sentence {i}." for i in range(20))]


@pytest.fixture
def memory():
    """Function (name, bytes) that makes a file of fsspec's in memory, of which nothing stays."""
    system = fsspec.filesystem("memory")
    yield lambda name, data: system.pipe_file(name, data)
    system.rm("/texts", recursive=True)


@pytest.fixture
def addresses(memory, tmp_path):
    """dict of the address of the sentences in each kind of file -> the same file here."""
    lines = "".join(f"{sentence}\n" for sentence in LINES)
    (tmp_path / "x.txt").write_text(lines, encoding="utf-8")
    (tmp_path / "x.tsv").write_text("sentence\n" + lines, encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.table({"sentence": LINES}), tmp_path / "x.parquet")
    paths = sorted(tmp_path.iterdir())
    for path in paths:
        memory(f"/texts/{path.name}", path.read_bytes())
    return {f"memory:///texts/{path.name}": str(path) for path in paths}


def test_a_pattern_of_an_address_gives_the_files_and_their_shards(addresses):
    found = input_files("memory:///texts/*.*")
    assert [file.path.rpartition("/")[2] for file in found] == ["x.parquet", "x.tsv", "x.txt"]
    for remote, local in zip(found, input_files(list(addresses.values())), strict=True):
        assert list(read_tables(**remote._asdict(), rows=7)) == list(read_tables(**local._asdict(), rows=7))
    for address in addresses:
        assert list(read_sentences(address)) == LINES
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
                if path == "broken.txt":
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
    with user_error("numbers://broken.txt: cannot be read as sentences in text: 503: try again later"):
        read_sentences("numbers://broken.txt")
    with user_error("numbers://broken.txt: cannot be read as sentences in parquet: 503: try again later"):
        list(read_sentences("numbers://broken.txt", file_format="parquet"))


def test_the_command_says_what_it_cannot_read(tmp_path):
    def said(address, out):
        command = "encode" if str(out).endswith(".npy") else "encode-folder"
        return refused(command, "--bert_hub", "demo", "--input", address, "--out", out, unchanged=tmp_path)

    missing = (tmp_path / "x.txt").as_uri()
    for out in (tmp_path / "out", tmp_path / "e.npy"):
        assert said(missing, out).startswith(f"{missing}: no such file")
        assert "s9://b/x.txt: cannot be read as sentences in text: Protocol not known: s9" in said("s9://b/x.txt", out)
    (tmp_path / "x.txt").write_text("w1\n")
    for out in ("s3://bucket/out", "s3://bucket/e.npy"):
        assert f"{out}: found an address" in said(missing, out)
    assert not os.path.exists("s3:")


def test_a_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert list(read_sentences(pipe)) == ["one", "two"]
    writer.join()
