"""Every format gives the sentences that were written, and every mistake in a file is named with its line."""

import csv
import io
import json
import types

import pyarrow
import pyarrow.parquet
import pytest

from bert_flow_tf.files import sentence_files
from bert_flow_tf.files.sentence_files import read_sentences
from tests.refusals import user_error

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
    (tmp_path / "s.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert list(read_sentences(tmp_path / "s.csv")) == ["A boat, say.", 'two\nlines, a "quote"', "", "open"]


def test_rows_without_names_may_have_any_number_of_fields(tmp_path):
    (tmp_path / "s.csv").write_text("a\nb,c\n")
    assert list(read_sentences(tmp_path / "s.csv", columns=["1"])) == ["a", "b"]


def test_a_field_of_csv_may_be_long_and_a_quote_that_nothing_ends_is_not_read_to_the_end(tmp_path):
    longest = "w1 " * 50_000
    (tmp_path / "s.csv").write_text(f"sentence\n{longest}\n")
    previous = csv.field_size_limit(131_072)
    try:
        assert list(read_sentences(tmp_path / "s.csv")) == [longest]
        (tmp_path / "s.csv").write_text('sentence\n"' + 17_000_000 * "w")
        with user_error("s.csv, line 2: not CSV (field larger than field limit"):
            read_sentences(tmp_path / "s.csv")
    finally:
        csv.field_size_limit(previous)


@pytest.mark.parametrize("ending", [".txt", ".parquet"])
def test_standard_input_is_read(files, ending, monkeypatch):
    monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(files[ending].read_bytes())))
    file_format = sentence_files.FORMATS[ending] if ending != ".txt" else None
    assert list(read_sentences("-", file_format=file_format)) == SENTENCES


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "s.tsv").write_bytes(b"\xef\xbb\xbfsentence\ta\nfirst\t1\n")
    assert list(read_sentences(tmp_path / "s.tsv")) == ["first"]


def test_a_line_is_read_when_it_is_reached(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text('{"sentence": "first"}\nbroken\n')
    sentences = read_sentences(path)
    assert next(sentences) == "first"
    with user_error("s.jsonl, line 2: not JSON"):
        next(sentences)


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("s.txt", b"good\nb\xffd\n", None, "s.txt, line 2: byte 1 is not UTF-8"),
        ("s.txt", b"good\n", ["sentence"], "column: found sentence for text, which has no columns"),
        ("s.tsv", b"a\tb\n1\t2\n", None, "s.tsv, line 1: found the columns a, b, expected sentence"),
        ("s.tsv", b"a\tsentence\n1\n", None, "s.tsv, line 2: number of fields: found 1, expected 2 or more"),
        ("s.csv", b"", None, "s.csv, line 1: found no columns, expected sentence"),
        ("s.csv", b"a,b\n1,2\n", None, "s.csv, line 1: found the columns a, b, expected sentence"),
        ("s.csv", b'a,sentence\n"1\n2",x\n3\n', None, "s.csv, line 4: number of fields: found 1, expected 2"),
        ("s.csv", b"sentence\nHello, world\n", None, "s.csv, line 2: number of fields: found 2, expected 1"),
        ("s.csv", b"sentence,id\na,1\nHello, world,3\n", None, "s.csv, line 3: number of fields: found 3, expected 2"),
        ("s.csv", b"id;sentence\n1;a\n", None, "names (see `column`); are the columns separated by ';'?"),
        *(
            (name, content, ["x", "id", "y"], "found the columns id, z, expected x and y")
            for name, content in (("s.tsv", b"id\tz\n"), ("s.csv", b"id,z\n"), ("s.jsonl", b'{"id": "", "z": ""}\n'))
        ),
        ("s.csv", b'sentence\n"a\nb"\n"c" d\n', None, "s.csv, line 4: not CSV (',' expected after '\"')"),
        ("s.csv", b'sentence\na\n"open\n', None, "s.csv, line 3: not CSV (unexpected end of data)"),
        ("s.csv", b"sentence\na\rb\n", None, "s.csv, line 2: not CSV (new-line character seen in unquoted field)"),
        ("s.csv", b'sentence\n"a\n\xff"\n', None, "s.csv, line 3: byte 0 is not UTF-8"),
        ("s.jsonl", b'{"text": "x"}\n', None, "s.jsonl, line 1: found the columns text, expected sentence"),
        ("s.jsonl", b'{"sentence": 3}\n', None, "s.jsonl, line 1: sentence: found 3, expected a string"),
        *(
            ("s.tsv", b"1\t2\n", [n], f"line 1: found the columns 1, 2, expected {n}")
            for n in ("0", "00", "５", "9" * 10)
        ),
        ("s.jsonl", b"[" * 100_000, None, "s.jsonl, line 1: not JSON"),
        ("s.jsonl", b"[1]\n", None, "s.jsonl, line 1: found list, expected an object"),
        ("s.parquet", b"no parquet", None, "s.parquet: cannot be read as Parquet"),
        ("s.doc", b"", None, "s.doc: found the ending '.doc', expected .txt, .tsv, .csv, .jsonl, .parquet"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, columns, message):
    (tmp_path / name).write_bytes(content)
    with user_error(message):
        list(read_sentences(tmp_path / name, columns=columns))


def test_a_missing_file_an_odd_value_and_a_missing_library_are_named(tmp_path, files, monkeypatch):
    for name in ("none.txt", "none.parquet"):
        with user_error(f"{name}: no such file"):
            read_sentences(tmp_path / name)
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["a", None]}), tmp_path / "null.parquet")
    with user_error("null.parquet, row 2: sentence: found None, expected a string"):
        list(read_sentences(tmp_path / "null.parquet"))
    bad = pyarrow.array([b"caf\xe9"]).cast(pyarrow.string(), safe=False)
    pyarrow.parquet.write_table(pyarrow.table({"sentence": bad}), tmp_path / "bytes.parquet")
    with user_error("bytes.parquet: cannot be read as Parquet: 'utf-8' codec can't decode byte 0xe9"):
        list(read_sentences(tmp_path / "bytes.parquet"))
    with user_error("expected y"):
        list(read_sentences(files[".parquet"], columns=["y"]))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with user_error("pyarrow is not installed: pip install 'bert-flow-tf[parquet]'"):
        list(read_sentences(files[".parquet"]))
