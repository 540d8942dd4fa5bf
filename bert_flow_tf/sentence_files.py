"""Sentences in files: text, TSV, JSON lines or Parquet, read one at a time."""

import codecs
import json
import pathlib
import sys

from bert_flow_tf.errors import UserError

STDIN = "-"
FORMATS = {".txt": "text", ".tsv": "tsv", ".jsonl": "jsonl", ".parquet": "parquet"}
_COLUMN = "sentence"


def read_sentences(path, *, file_format=None, columns=None):
    """Generator of the sentences of a file, in its order: strings, or lists of strings where there are several columns.

    Text holds a sentence a line. A TSV file has a line of column names, unless a column is told by its number, from 1.
    A line of JSON holds an object. Nothing is quoted in text and TSV, and every line counts, an empty one too.

    Args:
      path: the file; `-` is standard input.
      file_format: one of the values of `FORMATS`; None for what the file's ending says, and text for standard input.
      columns: list of column names, keys, or numbers in TSV; None for `sentence`. Text has none.

    Raises:
      UserError: the file cannot be read, or a line or a column is not what it should be; the line names file and line.
    """
    name = "standard input" if str(path) == STDIN else str(path)
    file_format = file_format or _format_of(path)
    several = columns is not None and len(columns) > 1
    if file_format == "text":
        if columns is not None:
            raise UserError(f"--column: found {', '.join(columns)} for text, which has no columns, expected none")
        return _lines(path, name)
    rows = _READERS[file_format](path, name, columns or [_COLUMN])
    return rows if several else (row[0] for row in rows)


def _format_of(path):
    if str(path) == STDIN:
        return "text"
    ending = pathlib.Path(path).suffix
    if ending not in FORMATS:
        raise UserError(f"{path}: found the ending {ending!r}, expected {', '.join(FORMATS)}, or --input_format")
    return FORMATS[ending]


def _open(path):
    return sys.stdin.buffer if str(path) == STDIN else pathlib.Path(path).open("rb")


def _lines(path, name):
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                try:
                    yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError as error:
                    raise UserError(f"{name}, line {number}: byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from error


def _tsv(path, name, columns):
    lines = _lines(path, name)
    first = 1
    if all(column.isdecimal() and column != "0" for column in columns):
        positions = [int(column) - 1 for column in columns]
    else:
        header = next(lines, "").split("\t")
        first = 2
        missing = [column for column in columns if column not in header]
        if missing:
            raise UserError(f"{name}, line 1: found the columns {', '.join(header)}, expected {missing[0]} (--column)")
        positions = [header.index(column) for column in columns]
    for number, line in enumerate(lines, start=first):
        fields = line.split("\t")
        if len(fields) <= max(positions):
            raise UserError(
                f"{name}, line {number}: found {len(fields)} columns, expected {max(positions) + 1} or more"
            )
        yield [fields[position] for position in positions]


def _json_lines(path, name, columns):
    for number, line in enumerate(_lines(path, name), start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{name}, line {number}: not JSON ({error}), expected an object a line") from error
        yield [_string(record, column, f"{name}, line {number}") for column in columns]


def _string(record, column, place):
    if not isinstance(record, dict) or column not in record:
        found = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise UserError(f"{place}: found {found}, expected {column} (--column)")
    if not isinstance(record[column], str):
        raise UserError(f"{place}: {column}: found {record[column]!r}, expected a string")
    return record[column]


def _parquet(path, name, columns):
    pyarrow = import_pyarrow(name)
    try:
        # Parquet is read from its end: standard input is taken whole.
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(sys.stdin.buffer.read()) if path == STDIN else path)
        missing = [column for column in columns if column not in file.schema_arrow.names]
        if missing:
            raise UserError(
                f"{name}: found the columns {', '.join(file.schema_arrow.names)}, expected {missing[0]} (--column)"
            )
        number = 0
        for batch in file.iter_batches(columns=columns):
            for row in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                for column, value in zip(columns, row, strict=True):
                    if not isinstance(value, str):
                        raise UserError(f"{name}, row {number}: {column}: found {value!r}, expected a string")
                yield list(row)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{name}: cannot be read as Parquet: {' '.join(str(error).split())}") from error


def import_pyarrow(name):
    """The module pyarrow, its `parquet` loaded; `name` is the file that needs it.

    Raises:
      UserError: it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f"{name}: Parquet needs pyarrow, expected it: pip install 'bert-flow-tf[parquet]'") from error
    return pyarrow


_READERS = {"tsv": _tsv, "jsonl": _json_lines, "parquet": _parquet}
