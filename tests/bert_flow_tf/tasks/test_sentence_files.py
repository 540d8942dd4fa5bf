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
from bert_flow_tf.tasks.sentence_files import (
    FormNames,
    TextFile,
    joined,
    read_tables,
    read_texts,
)
from tests.refusals import refused, user_error

# These include an empty one, one with quotes, and one of two scripts.
SENTENCES = ["A boat.", "", 'She said "now".', "東京 in spring"]
OTHERS = ["one", "two", "three", "four"]


def sentences_of(path, *columns, **form):
    """Return the sentences of a file, lists of them for several columns."""
    file = TextFile(path=path, columns=columns or ("sentence",), **form)
    if len(file.columns) == 1:
        return list(read_texts(file))
    return [list(row.values()) for table in read_tables(file) for row in table.to_pylist()]


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
    path = files[ending]
    assert sentences_of(path) == SENTENCES
    if ending == ".txt":
        assert sentences_of(path, "1") == SENTENCES
        return
    assert sentences_of(path, "other") == OTHERS
    pairs = [[b, a] for a, b in zip(SENTENCES, OTHERS, strict=True)]
    assert sentences_of(path, "other", "sentence") == pairs
    (table,) = read_tables(TextFile(path=path, kept=("other",)))
    assert table.to_pydict() == {"sentence": SENTENCES, "other": OTHERS}
    with user_error(
        str(path), ": found the columns ", "sentence", ", not othr; did you mean other?"
    ):
        sentences_of(path, "othr")


@pytest.mark.parametrize("ending", [".tsv", ".csv"])
def test_first_row_has_names_unless_no_header(files, ending, caplog):
    path = files[ending]
    caplog.set_level("INFO")
    for header in ("sentence", "今天天气很好"):
        path.write_text(path.read_text().replace("sentence", header))
        assert sentences_of(path, "2", names=FormNames(no_header="--no_header")) == OTHERS
        assert f"the first row has the columns' names: {header}, other; --no_header" in caplog.text
        assert sentences_of(path, "2", no_header=True) == ["other", *OTHERS]
    with user_error(f"{path}: found 2 columns, not 3"):
        sentences_of(path, "3", no_header=True)
    with user_error(f"no_header: {path}: found the column other, expected a number"):
        sentences_of(path, "other", no_header=True)
    path.write_text(path.read_text().replace("今天天气很好", "other"))
    with user_error(f"{path}: found the column other 2 times"):
        sentences_of(path, "other")


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".parquet"])
def test_no_header_is_refused_where_there_is_none(files, ending):
    with user_error(f"--no_header: {files[ending]}: found "):
        sentences_of(files[ending], "1", no_header=True, names=FormNames(no_header="--no_header"))


def test_quotes_in_csv_hold_commas_newlines_and_quotes(tmp_path):
    text = 'id,sentence\r\n1,"A boat, say."\r\n\r\n2,"two\nlines, a ""quote"""\n3,""\n4,open'
    (tmp_path / "s.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert sentences_of(tmp_path / "s.csv.gz") == [
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
    file_format = sentence_files.INPUT_FORMATS[ending] if ending != ".txt" else ""
    assert sentences_of("-", file_format=file_format) == SENTENCES


def test_file_is_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_files, "BLOCK_ROWS", 10)
    (tmp_path / "s.jsonl").write_text(100 * '{"sentence": "a"}\n' + "broken\n")
    sentences = read_texts(TextFile(path=tmp_path / "s.jsonl"))
    assert [next(sentences) for _ in range(50)] == 50 * ["a"]
    with user_error("s.jsonl, line 101: cannot be read as a JSON object"):
        list(sentences)


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
            ["found the columns a, sentenc, expected sentence", "did you mean sentenc?"],
        ),
        (
            "s.txt",
            "two\nlines\n".encode("utf-16-le"),
            None,
            ["NUL", "UTF-8, or UTF-16 with a mark"],
        ),
        ("s.txt", "two\nlines\n".encode("utf-32"), None, ["NUL", "UTF-8, or UTF-16 with a mark"]),
        ("s.tsv", b"a\tsentence\n1\n", None, ["line 2: found 1 fields, expected 2 or more: '1'"]),
        ("s.tsv", b"", None, ["found no row"]),
        ("s.csv", b"", None, ["found no row"]),
        (
            "s.csv",
            b"id,text\n1,2\n",
            None,
            [
                "found the columns id, text, expected sentence; choose with --column text, or "
                "--column 1 --no_header if the first row is data"
            ],
        ),
        ("s.csv", b"a,b\n1,2\n", ["3"], ["found the columns a, b, not 3"]),
        (
            "s.csv",
            b"sentence,id\na,1\nHello, world,3\n",
            None,
            ["line 3: found 3 fields, expected 2 as", "Hello"],
        ),
        (
            "s.csv",
            b'id,sentence\n1,a\n2,"b\n3,c\n',
            None,
            ["line 3: found a quote that is not closed"],
        ),
        (
            "s.csv",
            b'id,sentence\n1,"a\n2,b\n3,"c"\n',
            None,
            ["line 2: found a quote inside a quoted"],
        ),
        ("s.csv", b'sentence,id\n"a \\"b\\" c",1\n', None, ["line 2: ", "must be doubled"]),
        ("s.csv", b"sentence,id\ra,1\rb,2\r", None, ["line 1: found a carriage return"]),
        ("s.csv", b"sentence\n" + b"a" * (1 << 22) + b"b\n", None, ["line 2: ", "more than 4 MB"]),
        (
            "s.jsonl",
            b'{"sentence": "a"}\n{"text": "x"}\n',
            None,
            ["line 2: found the columns text, expected sentence; choose with --column text"],
        ),
        ("s.jsonl", b'{"sentence": "a\\ud800"}\n', None, ["line 1: cannot be read", "surrogates"]),
        ("s.jsonl", b'{"sentence": "a"}\n', ["1"], ["line 1: found the columns sentence, not 1"]),
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
        ("s.doc", b"", None, ["'.doc'", ".parquet, or --input_format"]),
        ("s.txt", None, None, ["no such file"]),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, columns, found):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        pyarrow.parquet.write_table(pyarrow.table({"sentence": content}), tmp_path / name)
    names = FormNames("--input_format", "--column", "--no_header")
    with user_error(name, *found):
        sentences_of(tmp_path / name, *columns or (), names=names)


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
        ("s.csv", '"id, key"|sentence\n1|x\n', None, ["x"]),
        ("s.csv", '\r\nid,sentence\r\n1,5" pipe\r\n\r\n2,\r\n', None, ['5" pipe', ""]),
        ("s.csv", "sentence\nx\n\ny\n", None, ["x", "y"]),
        ("s.csv", "sentence,id\nx,1\n".encode("utf-16"), None, ["x"]),
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
            read_texts(TextFile(path=path))
    else:
        assert sentences_of(path, *columns or ()) == expected


def test_kept_values_of_json_keep_their_types_or_become_text(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_files, "BLOCK_ROWS", 2)
    path = tmp_path / "s.jsonl"
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
        table = joined([*read_tables(TextFile(path=path, kept=(name,)))])
        texts = {"mixed": ["1", "0.5", "a7"], "nested": ['{"a":1}', "[2]", None]}
        assert table.column(name).to_pylist() == texts.get(name, given), name


def test_kept_bytes_of_parquet_stay_bytes(tmp_path):
    table = pyarrow.table({"sentence": [b"a"], "raw": [b"\xff"]})
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet")
    (table,) = read_tables(TextFile(path=tmp_path / "s.parquet", kept=("raw",)))
    assert table.to_pydict() == {"sentence": ["a"], "raw": [b"\xff"]}


def test_kept_values_of_csv_stay_as_they_are_written(tmp_path):
    (tmp_path / "s.csv").write_text("id,day,sentence\n007,2024-01-05,a\n1.50,,b\n")
    (table,) = read_tables(TextFile(path=tmp_path / "s.csv", kept=("id", "day")))
    assert table.select(["id", "day"]).to_pydict() == {
        "id": ["007", "1.50"],
        "day": ["2024-01-05", ""],
    }


def test_quotes_in_tsv_are_noticed(tmp_path, caplog):
    rows = [["id", "sentence"], ["1", "two\nlines"], ["2", 'a "quote"'], ["3", "a\ttab"]]
    with open(tmp_path / "s.tsv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    with user_error("s.tsv, line 3: found 1 fields, expected 2 or more"):
        sentences_of(tmp_path / "s.tsv")
    assert "looks quoted" in caplog.text and "make it a .csv file" in caplog.text
    assert sentences_of(tmp_path / "s.tsv", file_format="csv") == [text for _, text in rows[1:]]
    caplog.clear()
    (tmp_path / "s.tsv").write_text('sentence\n"Yes," she said.\n')
    assert sentences_of(tmp_path / "s.tsv") == ['"Yes," she said.'] and not caplog.text
    (tmp_path / "s.txt").write_bytes(b"one\rtwo")
    assert sentences_of(tmp_path / "s.txt") == ["one\rtwo"]
    assert "line 1 holds carriage returns" in caplog.text


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
            assert sentences_of(address) == SENTENCES
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
    assert sentences_of(pipe) == ["one", "two"]
    writer.join()
