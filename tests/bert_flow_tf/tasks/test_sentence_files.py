"""Every format gives the sentences that were written."""

import csv
import gzip
import io
import json
import os
import threading
import types

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from bert_flow_tf.scale.shards import input_files
from bert_flow_tf.tasks import sentence_files
from bert_flow_tf.tasks.sentence_files import read_sentences, read_tables
from tests.refusals import refused, user_error

# These include an empty one, one with quotes, and one of two scripts.
SENTENCES = ["A boat.", "", 'She said "now".', "東京 in spring"]
OTHERS = ["one", "two", "three", "four"]


@pytest.fixture
def files(tmp_path):
    """A file of each format with the columns `sentence` and `other`."""
    # Some programs begin a file with a byte order mark.
    (tmp_path / "s.txt").write_text(
        "".join(f"{sentence}\n" for sentence in SENTENCES), encoding="utf-8-sig"
    )
    rows = list(zip(SENTENCES, OTHERS, strict=True))
    lines = ["sentence\tother", *("\t".join(row) for row in rows)]
    (tmp_path / "s.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    with open(tmp_path / "s.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sentence", "other"), *rows])
    records = [json.dumps({"sentence": a, "other": b}) for a, b in rows]
    (tmp_path / "s.jsonl").write_text("\n".join(records), encoding="utf-8")
    table = pyarrow.table({"other": OTHERS, "sentence": SENTENCES})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet", row_group_size=3)
    return {path.suffix: path for path in tmp_path.iterdir()}


@pytest.mark.parametrize("ending", [".txt", ".tsv", ".csv", ".jsonl", ".parquet"])
def test_sentences_and_columns_come_as_they_were_written(files, ending, caplog):
    assert list(read_sentences(files[ending])) == SENTENCES
    if ending == ".txt":
        return
    assert list(read_sentences(files[ending], columns=["other"])) == OTHERS
    pairs = [[b, a] for a, b in zip(SENTENCES, OTHERS, strict=True)]
    assert list(read_sentences(files[ending], columns=["other", "sentence"])) == pairs
    options = {"file_format": ending[1:], "column": None, "kept": ["other"], "rows": 3}
    (first, kept), (last, _) = read_tables(files[ending], **options)
    assert first + last == SENTENCES and kept.column("other").to_pylist() == OTHERS[:3]
    if ending in (".tsv", ".csv"):
        # A number is a column of a file with names too, if the first row has a known name.
        assert list(read_sentences(files[ending], columns=["2"])) == OTHERS
        assert "with sentence, is taken as column names" in caplog.text
        assert list(read_sentences(files[ending], columns=["2"], no_header=True)) == [
            "other",
            *OTHERS,
        ]
        files[ending].write_text(files[ending].read_text().replace("sentence", "今天天气很好"))
        assert list(read_sentences(files[ending], columns=["2"])) == ["other", *OTHERS]
        files[ending].write_text(files[ending].read_text().replace("今天天气很好", "other"))
        with user_error(f"{files[ending]}: found the column other 2 times"):
            read_sentences(files[ending], columns=["other"])


def test_quotes_in_csv_hold_commas_newlines_and_quotes(tmp_path):
    text = 'id,sentence\r\n1,"A boat, say."\r\n\r\n2,"two\nlines, a ""quote"""\n3,""\n4,open'
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert list(read_sentences(tmp_path / "s.csv.gz")) == [
        "A boat, say.",
        'two\nlines, a "quote"',
        "",
        "open",
    ]


@pytest.mark.parametrize("ending", [".txt", ".parquet"])
def test_standard_input_is_read(files, ending, monkeypatch):
    monkeypatch.setattr(
        "sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(files[ending].read_bytes()))
    )
    file_format = sentence_files.INPUT_FORMATS[ending] if ending != ".txt" else None
    assert list(read_sentences("-", file_format=file_format)) == SENTENCES


def test_file_is_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_files, "BLOCK_ROWS", 10)
    (tmp_path / "s.jsonl").write_text(100 * '{"sentence": "a"}\n' + "broken\n")
    sentences = read_sentences(tmp_path / "s.jsonl")
    assert [next(sentences) for _ in range(50)] == 50 * ["a"]
    with user_error("s.jsonl, line 101: cannot be read as a JSON object"):
        list(sentences)


def test_tables_have_at_most_n_rows_and_keep_types(tmp_path):
    (tmp_path / "n.jsonl").write_text(
        "".join(f'{{"n": {i}, "sentence": "w{i}"}}\n' for i in range(5))
    )
    tables = list(
        read_tables(tmp_path / "n.jsonl", file_format="jsonl", column=None, kept=["n"], rows=2)
    )
    assert [sentences for sentences, _ in tables] == [["w0", "w1"], ["w2", "w3"], ["w4"]]
    assert [table.to_pydict() for _, table in tables] == [{"n": [0, 1]}, {"n": [2, 3]}, {"n": [4]}]


@pytest.mark.parametrize(
    ("name", "content", "columns", "found"),
    [
        (
            "s.txt",
            b"good\nb\xffd\n",
            None,
            ["s.txt, line 2: found the bytes b'\\xffd\\n', which are not utf-8"],
        ),
        ("s.txt", b"good\n", ["other"], ["columns sentence, not other"]),
        (
            "s.tsv",
            b"a\tsentenc\n1\t2\n",
            None,
            ["found the columns a, sentenc; ", "did you mean sentenc?"],
        ),
        (
            "s.txt",
            "two\nlines\n".encode("utf-16-le"),
            None,
            ["NUL", "UTF-8, or UTF-16 with a mark"],
        ),
        ("s.txt", "two\nlines\n".encode("utf-32"), None, ["NUL", "UTF-8, or UTF-16 with a mark"]),
        ("s.tsv", b"a\tsentence\n1\n", None, ["'1'", "2"]),
        ("s.csv", b"", None, []),
        (
            "s.csv",
            b"id,text\n1,2\n",
            None,
            ["found the columns id, text; choose with --column text"],
        ),
        ("s.csv", b"a,b\n1,2\n", ["3"], ["found 2 columns, not 3"]),
        ("s.csv", b"sentence,id\na,1\nHello, world,3\n", None, ["Row #3", "Hello, world,3"]),
        (
            "s.jsonl",
            b'{"sentence": "a"}\n{"text": "x"}\n',
            None,
            ["line 2: found the columns text; choose with"],
        ),
        ("s.jsonl", b'{"sentence": "a\\ud800"}\n', None, ["line 1: cannot be read", "surrogates"]),
        ("s.jsonl", b'{"sentence": 3}\n', None, ["line 1: sentence: found 3, expected a string"]),
        ("s.jsonl", b'[{"sentence": "a"}]', None, ["line 1: cannot be read as a JSON object"]),
        ("s.parquet", b"no parquet", None, ["cannot be read"]),
        ("s.parquet", pyarrow.array(["a", None]), None, [", row 2: sentence"]),
        ("s.parquet", pyarrow.array([1]), None, ["sentence: found int64"]),
        (
            "s.parquet",
            pyarrow.array([b"caf\xe9"]).cast(pyarrow.string(), safe=False),
            None,
            ["cannot be read"],
        ),
        ("s.doc", b"", None, ["'.doc'", ".parquet"]),
        ("s.txt", None, None, ["no such file"]),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, columns, found):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        pyarrow.parquet.write_table(pyarrow.table({"sentence": content}), tmp_path / name)
    with user_error(name, *found):
        list(read_sentences(tmp_path / name, columns=columns))


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("s.ndjson", '{"sentence": null}\n\n{"sentence": "x", "a": 1}', None, None),
        ("s.json", '{"sentence": "x"}\n{"b": [1], "sentence": "y"}\n', None, ["x", "y"]),
        ("S.TXT", "x\ny\n", None, ["x", "y"]),
        ("s.jsonl", '{"sentence": "x\x01", "b": NaN}\n', None, ["x\x01"]),
        ("s.tsv", "sentence\tid\nx\t1\n\ny\t2\n\n", None, ["x", "y"]),
        ("s.tsv", "sentence\nx\n\ny\n", None, ["x", "", "y"]),
        ("s.csv", 'id;sentence\n1;"x; y"\n2;"a, b"\n', None, ["x; y", "a, b"]),
        ("s.csv", "id\tsentence\n1\tx\n", None, ["x"]),
        ("s.txt", "x\n東京\n".encode("utf-16"), None, ["x", "東京"]),
        ("s.tsv", "sentence\tid\nx\t1\n".encode("utf-16"), None, ["x"]),
        ("s.parquet", pyarrow.array(["x", "y", "x"]).dictionary_encode(), None, ["x", "y", "x"]),
        ("s.parquet", pyarrow.array(["x", "y"], pyarrow.string_view()), None, ["x", "y"]),
        ("s.parquet", pyarrow.array(["x"], pyarrow.large_string()), None, ["x"]),
        ("s.parquet", pyarrow.array([b"x"]), None, ["x"]),
    ],
)
def test_other_forms_of_the_formats_are_read(tmp_path, name, content, columns, expected):
    path = tmp_path / name
    if isinstance(content, pyarrow.Array):
        others = pyarrow.nulls(len(content), pyarrow.int64())
        try:
            pyarrow.parquet.write_table(pyarrow.table({"none": others, "sentence": content}), path)
        except pyarrow.ArrowNotImplementedError:
            pytest.skip("this version of pyarrow cannot write the type")
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if expected is None:
        with user_error("row 1: sentence: found no value"):
            read_sentences(path)
    else:
        assert list(read_sentences(path, columns=columns)) == expected


def test_kept_values_of_json_keep_their_types_or_become_text(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_files, "BLOCK_ROWS", 2)
    path, options = tmp_path / "s.jsonl", {"file_format": "jsonl", "column": None, "rows": 100}
    values = {
        "date": ["2024-01-05", "2024-01-06", None],
        "number": [1, 2, 0.5],
        "mixed": [1, 0.5, "a7"],
        "late": [None, None, "x"],
        "nested": [{"a": 1}, [2], None],
    }
    for name, given in values.items():
        rows = [{"sentence": "s"} | ({} if value is None else {name: value}) for value in given]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        ((_, table),) = read_tables(path, kept=[name], **options)
        texts = {"mixed": ["1", "0.5", "a7"], "nested": ['{"a":1}', "[2]", None]}
        assert table.column(name).to_pylist() == texts.get(name, given), name


def test_kept_bytes_of_parquet_stay_bytes(tmp_path):
    table = pyarrow.table({"sentence": [b"a"], "raw": [b"\xff"]})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet")
    ((sentences, kept),) = read_tables(
        tmp_path / "s.parquet", file_format="parquet", column=None, kept=["raw"], rows=9
    )
    assert (sentences, kept.column("raw").to_pylist()) == (["a"], [b"\xff"])


def test_quotes_in_tsv_are_noticed(tmp_path, caplog):
    rows = [["id", "sentence"], ["1", "two\nlines"], ["2", 'a "quote"'], ["3", "a\ttab"]]
    with open(tmp_path / "s.tsv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    with user_error("expected 2 or more fields"):
        list(read_sentences(tmp_path / "s.tsv"))
    assert "looks quoted" in caplog.text and "make it a .csv file" in caplog.text
    assert list(read_sentences(tmp_path / "s.tsv", file_format="csv")) == [
        text for _, text in rows[1:]
    ]
    caplog.clear()
    (tmp_path / "s.tsv").write_text('sentence\n"Yes," she said.\n')
    assert list(read_sentences(tmp_path / "s.tsv")) == ['"Yes," she said.'] and not caplog.text
    (tmp_path / "s.csv").write_text('sentence,id\n"a \\"b\\" c",1\n')
    list(read_sentences(tmp_path / "s.csv"))
    (tmp_path / "s.txt").write_bytes(b"one\rtwo")
    assert list(read_sentences(tmp_path / "s.txt")) == ["one\rtwo"]
    assert (
        "CSV doubles the quotes" in caplog.text and "line 1 holds carriage returns" in caplog.text
    )


def test_a_folder_means_its_data_files(tmp_path, caplog):
    for name, text in {
        "_SUCCESS": "",
        "part-1.txt": "b\n",
        "part-0.txt": "a\n",
        "part-2.txt": "",
        ".crc": "x",
    }.items():
        (tmp_path / name).write_text(text)
    names = [str(tmp_path / f"part-{i}.txt") for i in range(2)]
    for given in (tmp_path, tmp_path / "*"):
        assert [file.path for file in input_files(given)] == names
    (tmp_path / "README.md").write_text("About these files.")
    assert [file.path for file in input_files(tmp_path)] == names and "README.md" in caplog.text


def test_a_pattern_of_an_address_gives_the_files(files):
    system = fsspec.filesystem("memory")
    for path in files.values():
        system.pipe_file(f"/patterns/{path.name}", path.read_bytes())
    try:
        found = [file.path for file in input_files("memory:///patterns/*.*")]
        assert found == sorted(f"memory:///patterns/{path.name}" for path in files.values())
        for address in found:
            assert list(read_sentences(address)) == SENTENCES
    finally:
        system.rm("/patterns", recursive=True)
    for pattern, problem in (
        ("memory:///patterns/*.jsonl", "no such file"),
        ("s9://b/*.txt", "cannot be read"),
    ):
        with user_error(f"{pattern}: {problem}"):
            input_files(pattern)


def test_addresses_that_cannot_be_used_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("w1\n")
    for address, out, found in (
        ("s9://b/x.txt", "e.npy", "s9://b/x.txt"),
        ("x.txt", "s3://b/e.npy", "s3://b/e.npy"),
    ):
        arguments = ("encode", "--bert_hub", "demo", "--input", address, "--out", out)
        assert (
            refused(*arguments, unchanged=tmp_path).removeprefix("--out=").startswith(f"{found}: ")
        )


def test_a_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    assert list(read_sentences(pipe)) == ["one", "two"]
    writer.join()
