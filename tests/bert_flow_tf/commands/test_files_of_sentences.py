"""All commands read all forms of files of sentences by one reader.

Each command is run up to its work. What counts is what the reader gave it; a command with a reader
of its own would get nothing here. A mistake is one line, which names options of this command alone.
"""

import csv
import gzip
import io
import json
import re
from typing import NamedTuple

import click
import pyarrow
import pyarrow.parquet
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.cli import main
from bert_flow_tf.tasks import sentence_files
from tests.refusals import bert_flow, refusal


class Reads(NamedTuple):
    """A command line up to its file, and its options."""

    line: str
    columns: tuple[str, ...] = ("sentence",)
    column: str = "--column"
    no_header: str | None = "--no_header"
    file_format: str | None = "--input_format"


def of_pairs(line):
    columns = ("sentence1", "sentence2", "score")
    return Reads(line, columns, "--pair_columns", "--no_pair_header", None)


ENCODER = "--bert_hub demo"
COMMANDS = [
    Reads(f"compare {ENCODER} --input"),
    Reads(f"duplicates {ENCODER} --threshold 0.9 --out groups.csv --input"),
    Reads(f"encode {ENCODER} --out out.npy --input"),
    Reads(f"encode-folder {ENCODER} --out out --input"),
    Reads(f"fit {ENCODER} --method sn --out out --input"),
    Reads(f"isotropy {ENCODER} --input"),
    Reads(f"pretrain {ENCODER} --steps 200 --out out --text"),
    Reads(f"search {ENCODER} query --input"),
    Reads(f"threshold {ENCODER} --false_matches 0.5 --input"),
    Reads(f"search {ENCODER} --input s.txt --queries", ("sentence",), "--query_column", None, None),
    Reads(
        f"similarity {ENCODER} --pairs", ("sentence1", "sentence2"), "--columns", file_format=None
    ),
    of_pairs(f"compare {ENCODER} --input s.txt --pairs"),
    of_pairs(f"evaluate {ENCODER} --pairs"),
    of_pairs(f"fit {ENCODER} --method sn --input s.txt --out out --pairs"),
    of_pairs(f"isotropy {ENCODER} --pairs"),
]
NAMES = [re.sub(r" --bert_hub demo|--(out|steps) \S+ ", "", one.line) for one in COMMANDS]
# A comma, quotes, letters of two scripts; the rest makes enough rows.
TEXTS = ['w1, w2 "w3"', "東京 w4", "é", *(f"w{i}" for i in range(30))]


def rows_of(count):
    """Return rows of an id and values; the third is a score."""
    return [[f"00{i}", text, f"w{i}", str(i % 5)][: 1 + count] for i, text in enumerate(TEXTS)]


def written(rows, delimiter=",", **options):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, **options).writerows(rows)
    return stream.getvalue()


def forms(columns):
    """Yield each form: name, bytes, given columns and True without header."""
    names = ["id", *columns]
    rows = rows_of(len(columns))
    numbers = [str(i) for i in range(2, 2 + len(columns))]
    tsv = "".join("\t".join(row) + "\n" for row in [names, *rows])
    table = written([names, *rows])
    others = [f"own {name}" for name in names]
    if len(columns) == 1:
        text = "".join(f"{row[1]}\n" for row in rows)
        yield "s.txt", text.encode(), None, False
        yield "s.txt.gz", gzip.compress(text.encode("utf-8-sig")), None, False
    yield "s.tsv", tsv.encode(), None, False
    yield "s.tsv", tsv.replace("\n", "\n\n").encode("utf-16"), None, False
    yield "s.tsv", tsv.encode(), numbers, False
    yield "s.tsv", tsv.partition("\n")[2].encode(), numbers, True
    yield "s.csv", table.encode(), None, False
    yield "S.CSV", table.replace("\r\n", "\r\n\r\n").encode("utf-8-sig"), None, False
    yield "s.csv.gz", gzip.compress(table.encode()), None, False
    yield "s.csv", written([others, *rows]).encode(), others[1:], False
    yield "s.csv", written([others, *rows]).encode(), numbers, False
    yield "s.csv", written(rows).encode(), numbers, True
    for delimiter in ";\t|":
        yield "s.csv", written([names, *rows], delimiter).encode(), None, False
    yield "s.csv", written([names, *rows], quoting=csv.QUOTE_ALL).encode(), None, False
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    yield "s.jsonl", "\n\n".join(map(json.dumps, objects)).encode(), None, False
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(objects), stream)
    yield "s.parquet", stream.getvalue(), None, False


class Stop(Exception):
    """The work begins here."""


def stop(*arguments, **options):
    raise Stop


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    return BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)


@pytest.fixture
def read(model, monkeypatch, tmp_path, request):
    """The rows of each file; works end where they begin."""
    found = {}

    def spied(reader):
        def given(file, stream):
            rows = found[file.name] = []
            for arrays in reader(file, stream):
                rows += zip(*(array.to_pylist() for array in arrays), strict=True)
                yield arrays

        return given

    for name, reader in sentence_files._READERS.items():
        monkeypatch.setitem(sentence_files._READERS, name, spied(reader))
    is_folder = re.search("search|encode-folder", request.node.name)
    monkeypatch.setattr(BertFlow, "from_hub", (lambda *given, **also: model) if is_folder else stop)
    monkeypatch.setattr("bert_flow_tf.encoder.source.resolve_encoder", stop)
    monkeypatch.setattr("bert_flow_tf.commands.pretrain.check_installed", lambda *given: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.txt").write_text("w1\nw2 w3\n")
    return found


def given(command, names, is_without_header):
    """Return the options of a file; None without such an option."""
    words = [] if names is None else [command.column, ",".join(names)]
    if not is_without_header:
        return words
    return None if command.no_header is None else [*words, command.no_header]


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_command_reads_every_form(command, read, tmp_path):
    expected = [tuple(row[1:]) for row in rows_of(len(command.columns))]
    for number, (name, content, names, is_without_header) in enumerate(forms(command.columns)):
        words = given(command, names, is_without_header)
        if words is None:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / name
        path.write_bytes(content)
        line = [
            f"{folder}/{word}" if word.startswith(("out", "groups")) else word
            for word in command.line.split()
        ]
        outcome = bert_flow(*line, path, *words)
        assert outcome.exit_code != 2, outcome.stderr
        assert outcome.exception is None or isinstance(outcome.exception, Stop), outcome
        # Only the kinds of the values may differ.
        assert [tuple(map(str, row)) for row in read[str(path)]] == expected, (name, words)


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_mistake_in_a_file_is_one_line_of_this_command(command, read, tmp_path):
    count = len(command.columns)
    names = ",".join(["id", *command.columns])
    fields = ",".join(["w1 w2", "w3", "4"][:count])
    for name, text, found in (
        ("s.dat", "", "found the ending '.dat', expected .txt, "),
        ("a.csv", f'{names}\n1,{fields}\n2,"{fields}\n3,{fields}\n', "line 3: found a quote that"),
        ("b.csv", f"{names}\n1,{fields}\n2,w1,{fields}\n", f"line 3: found {count + 2} fields"),
        ("c.tsv", f"{names}\n1,{fields}\n".replace(",", "\t").replace("sentence", "x"), "choose"),
        ("d.csv", "", "found no row"),
        ("e.txt", "w1\udcff\n", "line 1: found the bytes" if count == 1 else "has one column"),
    ):
        path = tmp_path / name
        path.write_text(text, errors="surrogateescape")
        outcome = bert_flow(*command.line.split(), path)
        line = refusal(outcome.exit_code, outcome.stderr, str(path), found, after_log=True)
        with click.Context(main) as context:
            params = main.get_command(context, command.line.split()[0]).params
        options = {flag for param in params for flag in (*param.opts, *param.secondary_opts)}
        assert {*re.findall(r"--\w+", line)} <= options, line
        if found == "choose":
            assert f"choose with {command.column} " in line
            assert command.no_header is None or f" {command.no_header} if the first row" in line
        if name == "s.dat":
            assert line.endswith(f"or {command.file_format}") == bool(command.file_format)
