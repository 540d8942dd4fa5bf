"""Sentences, checked: in files of text, TSV, CSV, JSON lines or Parquet, read one by one, or in an iterable."""

import codecs
import contextlib
import csv
import functools
import itertools
import json
import os
import pathlib
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

from bert_flow_tf.errors import ArgumentError, UserError, nearest, pip_install
from bert_flow_tf.files.reading import cannot_be_read, open_file
from bert_flow_tf.files.remote import is_remote, open_remote

STDIN = "-"
FORMATS = {".txt": "text", ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
_COLUMN = "sentence"
_NUMBER = re.compile("[1-9][0-9]{0,8}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_EXPECTED = "a file of sentences"
# Characters, of CSV.
_LONGEST_FIELD = 1 << 24
# Sentences of a stream that are sorted by length together, and the most of it that is in memory at a time.
PART = 16384

Path = str | os.PathLike[str]


class Span(NamedTuple):
    """Lines of a file that follow each other, or rows of Parquet: the number of the first, from 1, and how many.

    Of CSV, whose rows may be several lines, `first` is a line's number and `rows` counts rows. `offset` is the
    number of bytes before the first line; of Parquet it is 0.
    """

    first: int
    rows: int
    offset: int = 0


def read_sentences(
    path: Path, *, file_format: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Iterator over the sentences of a file, in its order: strings, or lists of strings if there are several columns.

    Text holds one sentence per line. TSV and CSV begin with a line of column names, unless columns are given as
    numbers, from 1. A line of JSON holds an object. Nothing is quoted in text and TSV, and an empty line is an empty
    sentence; in CSV it is no row, and quotes hold commas, newlines and doubled quotes (RFC 4180).

    Args:
      path: the file, or its address (see `files.remote`); `-` is standard input.
      file_format: one of the values of `FORMATS`; None for what the file's ending says, and text for standard input.
      columns: list of column names, keys, or numbers in TSV and CSV; None for `sentence`. Text has none.

    Raises:
      UserError: the file cannot be read, or a line or a column is not as expected; the line names file and line. What
        is wrong up to the first sentence is refused by the call, the rest when it is reached.
    """
    name = "standard input" if str(path) == STDIN else str(path)
    file_format = file_format or ("text" if str(path) == STDIN else format_of_ending(path, FORMATS, "input_format"))
    rows: Iterator[Any]
    if file_format == "text":
        if columns is not None:
            raise ArgumentError(f"column: found {', '.join(columns)} for text, which has no columns, expected none")
        rows = _lines(path, name)
    else:
        rows = _READERS[file_format](path, name, columns or [_COLUMN])
        if columns is None or len(columns) == 1:
            rows = (row[0] for row in rows)
    first = list(itertools.islice(rows, 1))
    return itertools.chain(first, rows)


def sentence_list(sentences: Iterable[str], name: str = "sentences") -> list[str]:
    """list of the strings of an iterable, checked as `parts` checks them."""
    return [sentence for part in parts(sentences, name) for sentence in part]


def parts(sentences: Iterable[str], name: str = "sentences") -> Iterator[list[str]]:
    """Yields lists of up to `PART` strings of the iterable, in its order.

    Raises:
      UserError: it is not an iterable of strings, or has no order; the line names the element.
    """
    if isinstance(sentences, (str, bytes, dict, Set)) or not isinstance(sentences, Iterable):
        raise UserError(f"{name}: found {_found(sentences)}, expected strings in a list or another ordered iterable")
    iterator = iter(sentences)
    position = 0
    while part := list(itertools.islice(iterator, PART)):
        for i, sentence in enumerate(part, start=position):
            if not isinstance(sentence, str):
                raise UserError(f"{name}[{i}]: found {_found(sentence)}, expected a string")
            try:
                sentence.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{name}[{i}]: found U+{ord(sentence[error.start]):04X} at character {error.start}, expected text "
                    "that UTF-8 can hold"
                ) from None
        position += len(part)
        yield part


def _found(value: Any) -> str:
    shown = repr(value).splitlines()[0] if value is not None else ""
    kind = "None" if value is None else f"{type(value).__name__} {shown}"
    return kind if len(kind) <= 80 else f"{kind[:77]}..."


def format_of_ending(path: Path, formats: dict[str, str], option: str) -> str:
    """Name of the format that a file's ending says; `option` is the name of what a command takes instead.

    Raises:
      UserError: none of the formats has that ending.
    """
    ending = pathlib.Path(path).suffix
    if ending not in formats:
        message = f"{path}: found the ending {ending!r}, expected {', '.join(formats)}, or `{option}`"
        raise UserError(message, arguments=[option])
    return formats[ending]


def open_sentences(path: Path) -> BinaryIO:
    """A file or address, or standard input, open for reading; it may be a pipe."""
    if str(path) == STDIN:
        return sys.stdin.buffer
    return open_remote(str(path)) if is_remote(path) else open_file(path, _EXPECTED, is_stream=True)


def read_lines(
    path: Path, *, file_format: str, column: str | None, kept: Sequence[str], span: Span | None
) -> Iterator[list[str]]:
    """Yields [sentence, a value for each kept column] of each row of a part of a file of lines: any format but Parquet.

    As `read_sentences`. Kept values of JSON that are not strings are their JSON text. Raises as it.
    """
    if file_format == "text":
        yield from ([line] * (1 + len(kept)) for line in _lines(path, str(path), span))
    else:
        yield from _READERS[file_format](path, str(path), [column or _COLUMN], kept, span)


def has_names(columns: Sequence[str]) -> bool:
    """Whether the first row of a TSV or CSV file with these columns holds their names, since they are no numbers."""
    return not all(map(_NUMBER.fullmatch, columns))


def _lines(path: Path, name: str, span: Span | None = None, *, keeps_ends: bool = False) -> Iterator[str]:
    with open_sentences(path) as stream:
        try:
            lines: Iterable[bytes] = stream
            if span is not None:
                stream.seek(span.offset)
                lines = itertools.islice(stream, span.rows)
            for number, line in enumerate(lines, start=span.first if span else 1):
                if number == 1 and not keeps_ends:
                    line = line.removeprefix(codecs.BOM_UTF8)
                try:
                    text = line.decode("utf-8")
                    yield text if keeps_ends else text.removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError as error:
                    raise UserError(f"{name}, line {number}: byte {error.start} is not UTF-8") from error
        except OSError as error:
            raise cannot_be_read(name, error, _EXPECTED) from error


def check_columns(
    place: str, columns: Sequence[str], found: Sequence[str], kept: Sequence[str] = (), or_else: str = ""
) -> None:
    """Raises `UserError`, beginning with the place, unless all of the columns and the kept ones are among those found.

    `or_else` is what else may be expected.
    """
    wanted = list(dict.fromkeys([*columns, *kept]))
    missing = [column for column in wanted if column not in found]
    if not missing:
        return
    argument = "keep" if missing[0] not in columns else "column" if len(columns) == 1 else "columns"
    names = f"the columns {', '.join(found)}" if found else "no columns"
    delimiter = re.search("[,;|\t]", found[0]) if len(found) == 1 else None
    others = [column for column in found if column not in wanted]
    hint = f"; are the columns separated by {delimiter[0]!r}?" if delimiter else nearest(missing[0], others)
    expected = f"{' and '.join(missing)}{or_else} (see `{argument}`){hint}"
    raise UserError(f"{place}: found {names}, expected {expected}", arguments=[argument])


def column_positions(columns: Sequence[str], name: str, header: Sequence[str], kept: Sequence[str] = ()) -> list[int]:
    """Where the columns of TSV or CSV are, from 0; `header` is the first row, with the names of those that have one."""
    wanted = [*columns, *kept]
    if not has_names(wanted):
        return [int(column) - 1 for column in wanted]
    check_columns(f"{name}, line 1", columns, header, kept, or_else=", or numbers where no line has names")
    return [header.index(column) for column in wanted]


class Row(NamedTuple):
    """The fields of a row, the number of the line that it begins in, from 1, and the bytes of the file before it."""

    fields: list[str]
    line: int
    offset: int


def _tsv_rows(path: Path, name: str, span: Span | None = None) -> Iterator[Row]:
    for number, line in enumerate(_lines(path, name, span), start=span.first if span else 1):
        yield Row(line.split("\t"), number, 0)


def csv_rows(path: Path, name: str, span: Span | None = None) -> Iterator[Row]:
    """Yields the rows of a CSV file, or of a part of it.

    Raises:
      UserError: the file cannot be read, or a row is no CSV.
    """
    line, offset = (span.first, span.offset) if span else (1, 0)
    end = offset

    def lines() -> Iterator[str]:
        nonlocal end
        for text in _lines(path, name, span and span._replace(rows=sys.maxsize), keeps_ends=True):
            begins_file = end == 0
            end += len(text.encode())
            yield text.removeprefix("\ufeff") if begins_file else text

    # Python's, 131,072 characters, can be raised for the whole process only. Without one, a quote that nothing ends
    # would bring the rest of the file into memory.
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    reader = csv.reader(lines(), strict=True)
    first, rows = line, 0
    try:
        for fields in reader:
            if span is not None and rows == span.rows:
                return
            if fields:
                rows += 1
                yield Row(fields, line, offset)
            line, offset = first + reader.line_num, end
    except csv.Error as error:
        said = str(error).partition(" - ")[0]
        raise UserError(f"{name}, line {line}: not CSV ({said}), expected quotes around whole fields") from None


# Format -> function from path, its name and a `Span` or None to an iterator over `Row`.
_READERS_OF_ROWS = {"tsv": _tsv_rows, "csv": csv_rows}


def _table(
    rows_of: Callable[..., Iterator[Row]],
    path: Path,
    name: str,
    columns: Sequence[str],
    kept: Sequence[str] = (),
    span: Span | None = None,
) -> Iterator[list[str]]:
    rows = rows_of(path, name)
    header = next(rows, Row([], 1, 0)).fields if has_names([*columns, *kept]) else []
    positions = column_positions(columns, name, header, kept)
    if span is not None:
        rows = rows_of(path, name, span)
    least = max(positions) + 1
    counts, expected = range(least, sys.maxsize), f"{least} or more"
    if header and rows_of is csv_rows:
        # Without quotes, a comma would cut a sentence. In TSV, the rows of GLUE's own files differ.
        counts = range(len(header), len(header) + 1)
        expected = f"{len(header)}, one for each name (a field that holds commas needs quotes)"
    for fields, line, _ in rows:
        if len(fields) not in counts:
            raise UserError(f"{name}, line {line}: number of fields: found {len(fields)}, expected {expected}")
        yield [fields[position] for position in positions]


def _json_lines(
    path: Path, name: str, columns: Sequence[str], kept: Sequence[str] = (), span: Span | None = None
) -> Iterator[list[str]]:
    for number, line in enumerate(_lines(path, name, span), start=span.first if span else 1):
        place = f"{name}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: not JSON ({error}), expected an object per line") from error
        if not isinstance(record, dict):
            raise UserError(f"{place}: found {type(record).__name__}, expected an object")
        check_columns(place, columns, list(record), kept)
        strings = [_string(record[column], place, column) for column in columns]
        yield strings + [_json_text(record[column], place, column) for column in kept]


def _string(value: object, place: str, column: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{place}: {column}: found {reprlib.repr(value)}, expected a string")
    # JSON can escape half a character.
    if not value.isascii() and _SURROGATE.search(value):
        raise UserError(f"{place}: {column}: found {value[:40]!a}, expected text that UTF-8 can hold")
    return value


def _json_text(value: object, place: str, column: str) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return _string(value, place, column)


@contextlib.contextmanager
def open_parquet(path: Path, name: str, columns: Sequence[str], kept: Sequence[str] = ()) -> Iterator[Any]:
    """The file as `pyarrow.parquet.ParquetFile`, which has these columns and the kept ones.

    Raises:
      UserError: it has not, or cannot be read, now or within the block; or pyarrow is not installed.
    """
    pyarrow = import_pyarrow(name)
    try:
        # Parquet is read from its end: standard input is taken whole.
        if str(path) == STDIN:
            source = pyarrow.BufferReader(sys.stdin.buffer.read())
        elif is_remote(path):
            source = open_sentences(path)
        else:
            source = path
            open_file(path, _EXPECTED).close()
        with pyarrow.parquet.ParquetFile(source) as file:
            check_columns(name, columns, file.schema_arrow.names, kept)
            yield file
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{name}: cannot be read as Parquet: {' '.join(str(error).split())}") from error


def _parquet(path: Path, name: str, columns: Sequence[str]) -> Iterator[list[str]]:
    with open_parquet(path, name, columns) as file:
        number = 0
        for batch in file.iter_batches(columns=columns):
            for row in zip(*(batch.column(column).to_pylist() for column in columns), strict=True):
                number += 1
                place = f"{name}, row {number}"
                yield [_string(value, place, column) for column, value in zip(columns, row, strict=True)]


def read_parquet_rows(path: Path, *, column: str | None, kept: Sequence[str], span: Span) -> tuple[list[str], Any]:
    """The sentences of a part of a Parquet file, and a `pyarrow.Table` of its kept columns.

    Raises:
      UserError: as `read_sentences`.
    """
    column, name = column or _COLUMN, str(path)
    columns = list(dict.fromkeys([column, *kept]))
    with open_parquet(path, name, [column], kept) as file:
        before, groups, skipped = 0, [], 0
        for i in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(i).num_rows
            if before + rows < span.first:
                skipped += rows
            elif before < span.first - 1 + span.rows:
                groups.append(i)
            before += rows
        wanted, batches = span.rows, []
        drop = span.first - 1 - skipped
        for batch in file.iter_batches(batch_size=span.rows, row_groups=groups, columns=columns):
            if drop >= len(batch):
                drop -= len(batch)
                continue
            batches.append(batch.slice(drop, wanted))
            wanted -= len(batches[-1])
            drop = 0
            if not wanted:
                break
        table = import_pyarrow(name).Table.from_batches(batches)
        sentences = [
            _string(value, f"{name}, row {number}", column)
            for number, value in enumerate(table.column(column).to_pylist(), start=span.first)
        ]
    return sentences, table.select(list(kept))


def import_pyarrow(name: str) -> ModuleType:
    """The module pyarrow with its `parquet`; `name` is the file that needs it.

    Raises:
      UserError: it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f"{name}: pyarrow is not installed: {pip_install('parquet')}") from error
    return pyarrow


_READERS: dict[str, Callable[..., Iterator[list[str]]]] = {
    **{name: functools.partial(_table, rows_of) for name, rows_of in _READERS_OF_ROWS.items()},
    "jsonl": _json_lines,
    "parquet": _parquet,
}
