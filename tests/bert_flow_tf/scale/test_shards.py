"""Shards have every row of the files once and in order, know what they are of, and name what cannot be read."""

import csv
import json
import os

import pyarrow.parquet
import pytest

from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.scale.shards import cut, input_paths, read_shard
from tests.refusals import user_error

SENTENCES = ["A boat.", "", "東京 – x", 'a "quote", so', *(f"Sentence {i}." for i in range(20))]


def _write(folder):
    """A file of each format with the sentences; dict of path -> column."""
    lines = "".join(f"{sentence}\n" for sentence in SENTENCES)
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbf" + lines.replace("\n", "\r\n").encode())
    (folder / "open.txt").write_text(lines.removesuffix("\n"), encoding="utf-8")
    rows = [f"{i}\t{sentence}\tend" for i, sentence in enumerate(SENTENCES)]
    (folder / "names.tsv").write_text("\n".join(["id\ttext\tx", *rows]), encoding="utf-8")
    (folder / "numbers.tsv").write_text("\n".join(rows), encoding="utf-8")
    with open(folder / "quoted.csv", "w", encoding="utf-8", newline="") as file:
        file.write("\ufeff")
        csv.writer(file).writerows([("id", "text", "x"), *((f"{i}\n\n", s, "end") for i, s in enumerate(SENTENCES))])
    records = [json.dumps({"text": sentence, "id": i, "tags": ["é", i]}) for i, sentence in enumerate(SENTENCES)]
    (folder / "rows.jsonl").write_text("\n".join(records))
    table = pyarrow.table({"id": range(len(SENTENCES)), "text": SENTENCES})
    for rows in (4, 100):
        pyarrow.parquet.write_table(table, folder / f"groups_of_{rows}.parquet", row_group_size=rows)
    columns = {"bom.txt": None, "open.txt": None, "numbers.tsv": "2"}
    return {str(path): columns.get(path.name, "text") for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("shard_rows", [1, 7, 23, 1000])
def test_shards_have_every_row_once_and_in_order(tmp_path, shard_rows):
    for path, column in _write(tmp_path).items():
        shards = cut([path], column=column, shard_rows=shard_rows).shards
        found = [read_shard(shard) for shard in shards]
        assert [len(sentences) for sentences, _ in found[:-1]] == [shard_rows] * (len(shards) - 1)
        sentences = [sentence for part, _ in found for sentence in part]
        assert sentences == SENTENCES == list(read_sentences(path, columns=column and [column])), path
        (name,) = found[0][1].column_names
        assert name == (column or "sentence")
        assert pyarrow.concat_tables([table for _, table in found]).column(name).to_pylist() == SENTENCES
        assert [shard.name for shard in shards] == [f"part-00000-{i:05d}.parquet" for i in range(len(shards))]


def test_kept_columns_are_strings_and_parquets_keep_their_types(tmp_path):
    _write(tmp_path)
    for name, column, keep, expected in (
        ("names.tsv", "text", ["x", "id"], {"x": ["end"] * 2, "id": ["7", "8"]}),
        ("numbers.tsv", "2", ["1", "2"], {"1": ["7", "8"], "2": SENTENCES[7:9]}),
        ("quoted.csv", "text", ["x", "id"], {"x": ["end"] * 2, "id": ["7\n\n", "8\n\n"]}),
        ("rows.jsonl", "text", ["id", "tags"], {"id": ["7", "8"], "tags": ['["é", 7]', '["é", 8]']}),
        ("groups_of_4.parquet", "text", ["id"], {"id": [7, 8]}),
    ):
        given = cut([str(tmp_path / name)], column=column, keep=keep, shard_rows=7)
        sentences, table = read_shard(given.shards[1])
        assert sentences == SENTENCES[7:14]
        assert table.slice(0, 2).to_pydict() == expected


def test_a_digest_is_of_the_rows_and_of_how_they_are_read(tmp_path):
    def digests(text, column="a", **options):
        (tmp_path / "x.tsv").write_text(text)
        return [shard.digest for shard in cut([str(tmp_path / "x.tsv")], column=column, shard_rows=1, **options).shards]

    before = digests("a\tb\n1\t2\n3\t4\n")
    assert len(set(before)) == 2
    assert digests("a\tb\n1\t2\n3\t5\n")[0] == before[0] != before[1]
    assert digests("a\tb\n1\t2\n3\t5\n")[1] != before[1]
    # Nothing of a row has changed, and all of what is read of it.
    assert {*digests("b\ta\n1\t2\n3\t4\n")}.isdisjoint(before)
    assert {*digests("a\tb\n1\t2\n3\t4\n", keep=["b"])}.isdisjoint(before)
    assert {*digests("a\tb\n1\t2\n3\t4\n", column="b")}.isdisjoint(before)
    (tmp_path / "x.jsonl").write_text('{"a": "1", "b": "2"}\n')
    one, other = (cut([str(tmp_path / "x.jsonl")], column=column).shards[0].digest for column in "ab")
    assert one != other


def test_a_file_that_changes_after_it_was_cut_is_refused(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a\nb\n")
    (shard,) = cut([str(path)]).shards
    path.write_text("a\nc\n")
    os.utime(path, ns=(0, 0))
    with user_error(f"{path}: found another file than when the command began"):
        read_shard(shard)


@pytest.mark.parametrize("ending", ["txt", "tsv", "csv", "jsonl", "parquet"])
def test_a_pipe_is_refused(tmp_path, ending):
    path = tmp_path / f"pipe.{ending}"
    os.mkfifo(path)
    with user_error(f"{path}: found a pipe or a device, expected a file of sentences"):
        cut([str(path)])


def test_a_column_that_is_missing_is_named_with_its_argument(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"a": ["1"], "b": ["2"]}), tmp_path / "x.parquet")
    (tmp_path / "x.tsv").write_text("a\tb\n1\t2\n")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for name in ("x.parquet", "x.tsv", "x.csv"):
        for column, keep, missing, argument in (("c", None, "c", "column"), ("a", ["c"], "c", "keep")):
            with user_error(f"found the columns a, b, expected {missing}", f"(see `{argument}`)"):
                cut([str(tmp_path / name)], column=column, keep=keep)
    (tmp_path / "x.jsonl").write_text('{"a": "1"}\n')
    with user_error("x.jsonl, line 1: found the columns a, expected c (see `keep`)"):
        read_shard(cut([str(tmp_path / "x.jsonl")], column="a", keep=["c"]).shards[0])


def test_a_file_that_cannot_be_cut_is_named_and_the_others_are_cut(tmp_path):
    good, missing, kind, broken = (tmp_path / f"{i}.parquet" for i in range(4))
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["a"], "id": [1]}), good)
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "id": [1]}), missing)
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["a"], "id": ["one"]}), kind)
    broken.write_text("PAR1")
    given = cut([str(path) for path in (good, missing, kind, broken)], keep=["id"])
    assert [shard.name for shard in given.shards] == ["part-00000-00000.parquet"]
    assert list(given.refused) == ["part-00001", "part-00002", "part-00003"]
    assert f"{missing}: found the columns text, id, expected sentence" in str(given.refused["part-00001"])
    assert f"{kind}: id: found string, expected int64" in str(given.refused["part-00002"])
    assert f"{broken}: cannot be read as Parquet" in str(given.refused["part-00003"])
    with user_error(f"{missing}: found the columns"):
        cut([str(missing), str(broken)])


def test_a_line_that_cannot_be_read_is_named_by_its_number_in_the_file(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"a\nb\nc\n\xff\n")
    records = [json.dumps({"sentence": sentence}) for sentence in ("a", "b", "c", "\ud800")]
    (tmp_path / "x.jsonl").write_text("\n".join(records))
    (tmp_path / "x.tsv").write_text("id\tsentence\n1\ta\n2\tb\n3\n")
    (tmp_path / "comma.csv").write_text("sentence\na\nb\nHello, world\n")
    (tmp_path / "x.csv").write_text('id,sentence\n1,a\n"2\n",b\n3\n')
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["a", "b", "c", None]}), tmp_path / "x.parquet")
    for name, message in (
        ("x.txt", "line 4: byte 0 is not UTF-8"),
        ("x.jsonl", r"line 4: sentence: found '\ud800', expected text that UTF-8 can hold"),
        ("x.tsv", "line 4: number of fields: found 1, expected 2"),
        ("comma.csv", "line 4: number of fields: found 2, expected 1, one for each name"),
        ("x.csv", "line 5: number of fields: found 1, expected 2"),
        ("x.parquet", "row 4: sentence: found None, expected a string"),
    ):
        shards = cut([str(tmp_path / name)], shard_rows=2).shards
        assert read_shard(shards[0])[0] == ["a", "b"]
        with user_error(f"{name}, {message}"):
            read_shard(shards[1])


def test_patterns_name_files_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "[x].txt", "c.tsv"):
        (tmp_path / name).touch()
    (tmp_path / "folder.txt").mkdir()
    found = input_paths([tmp_path / "c.tsv", f"{tmp_path}/?.txt", f"{tmp_path}/[x].txt"])
    assert found == [str(tmp_path / name) for name in ("c.tsv", "a.txt", "b.txt", "[x].txt")]
    with user_error("found no file of such a name"):
        input_paths(f"{tmp_path}/*.jsonl")
    with user_error("a.txt: found it twice"):
        input_paths([f"{tmp_path}/*.txt", tmp_path / "a.txt"])
