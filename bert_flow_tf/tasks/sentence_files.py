"""Read files of sentences: text, TSV, CSV, JSON lines and Parquet."""

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import logging
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_flow_tf.common.errors import UserError, check_open, suggest
from bert_flow_tf.common.reading import AnyPath, is_remote, reading
from bert_flow_tf.vectors.texts import BLOCK_ROWS

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

STDIN = "-"
SENTENCE = "sentence"
# Files of pairs have these columns by default.
PAIR = ("sentence1", "sentence2", "score")
INPUT_FORMATS = {
    ".txt": "text",
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
# Their first row has the columns' names.
_WITH_HEADER = ("tsv", "csv")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# This many bytes are read at once; a field of TSV or CSV must not be longer.
_BLOCK = 1 << 22


class FormNames(NamedTuple):
    """The caller's names of arguments, for messages; empty without one."""

    file_format: str = ""
    column: str = ""
    no_header: str = ""


_NO_NAMES = FormNames()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFile:
    """A file of texts: what it holds, and which columns to read.

    Attributes:
      path: a file, perhaps compressed as `.gz`, an address that fsspec opens, or `-` for standard
        input.
      file_format: a value of `INPUT_FORMATS`; by default from the file's ending (standard input is
        text).
      columns: columns of texts: names, keys of JSON, or numbers from 1.
      kept: other columns of any type.
      no_header: True if the first row of TSV or CSV is data; then columns are numbers.
      names: the caller's names of these attributes, for messages.

    Raises:
      UserError: the ending is unknown, or `no_header` has no effect.
    """

    path: AnyPath
    file_format: str = ""
    columns: tuple[str, ...] = (SENTENCE,)
    kept: tuple[str, ...] = ()
    no_header: bool = False
    names: FormNames = _NO_NAMES

    def __post_init__(self) -> None:
        found = self.file_format or ("text" if str(self.path) == STDIN else known_format(self.path))
        if found is None:
            advice = self.names.file_format and f", or {self.names.file_format}"
            raise UserError(
                f"{self.name}: found the ending {pathlib.Path(self.path).suffix!r}, expected "
                f"{', '.join(INPUT_FORMATS)}{advice}"
            )
        object.__setattr__(self, "file_format", found)
        if self.no_header:
            problem = f"{self.names.no_header or 'no_header'}: {self.name}: found"
            if found not in _WITH_HEADER:
                raise UserError(f"{problem} {found}, which has no row of column names")
            if not all(one.isdecimal() and int(one) for one in self.wanted):
                raise UserError(f"{problem} the column {self.wanted[0]}, expected a number")
        if found == "text" and len(self.wanted) > 1:
            raise UserError(
                f"{self.name}: found text, which has one column, expected "
                f"{', '.join(self.wanted)} of a table"
            )

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return "standard input" if str(self.path) == STDIN else str(self.path) or "''"

    @property
    def wanted(self) -> list[str]:
        """The columns of texts, and the kept ones."""
        return [*dict.fromkeys([*self.columns, *self.kept])]

    def names_among(self, first: Sequence[str]) -> list[str]:
        """Return the wanted columns' names; turn numbers into names of `first`."""
        numbered = {str(i): one for i, one in enumerate(first, 1)}
        found = [one if one in first else numbered.get(one, one) for one in self.wanted]
        for name in found:
            if first.count(name) > 1 and name not in numbered:
                raise UserError(
                    f"{self.name}: found the column {name} {first.count(name)} times, expected it "
                    "once"
                )
            if name not in first:
                raise self.no_column(name, first)
        return found

    def no_column(self, name: str, first: Sequence[str]) -> UserError:
        """Return the error for a column that a file does not have."""
        found = f"{self.name}: found the columns {', '.join(first)}"
        if name not in (SENTENCE, *PAIR):
            return UserError(f"{found}, not {name}{suggest(name, first)}")
        option = self.names.column
        if not option:
            return UserError(f"{found}, expected {name}")
        count = 1 if name == SENTENCE else len(self.wanted)
        likely = [one for one in first if re.search("text|sentence", one, re.IGNORECASE)]
        values = ",".join(("A", "B", "SCORE")[:count]) if count > 1 else [*likely, "NAME"][0]
        hint = f"; choose with {option} {values}"
        if self.names.no_header and self.file_format in _WITH_HEADER:
            numbers = ",".join(map(str, range(1, count + 1)))
            hint += f", or {option} {numbers} {self.names.no_header} if the first row is data"
        return UserError(f"{found}, expected {name}{hint}{suggest(name, first)}")


def known_format(path: AnyPath) -> str | None:
    """Return the format of a file's ending; None if it is unknown."""
    path = pathlib.Path(path)
    if path.suffix.lower() in _COMPRESSED:
        path = path.with_suffix("")
    return INPUT_FORMATS.get(path.suffix.lower())


def read_texts(file: TextFile) -> Iterator[str]:
    """Iterate over a file's sentences; the first is read now.

    Raises:
      UserError: as `read_tables`.
    """
    texts = (text for table in read_tables(file) for text in table.column(0).to_pylist())
    return itertools.chain(list(itertools.islice(texts, 1)), texts)


def read_tables(file: TextFile) -> "Iterator[pyarrow.Table]":
    """Yield tables of up to `BLOCK_ROWS` rows with the wanted columns.

    Text has one text per line. The first row of TSV and CSV has the columns' names unless
    `no_header`; their values are texts. TSV has no quotes. CSV has quotes around a field that
    holds quotes, which are doubled, commas or line breaks; semicolons, tabs or bars separate
    fields if the first row has no comma. Files are UTF-8, or UTF-16 with a byte order mark.

    Raises:
      UserError: the file is unreadable, or a row or column is invalid.
    """
    import pyarrow

    rows_before = 0
    with reading(file.name, f"sentences in {file.file_format}"), _opened(file) as stream:
        for arrays in _READERS[file.file_format](file, stream):
            table = pyarrow.table(arrays, file.wanted)
            # Parquet may hold bytes that are not UTF-8.
            table.validate(full=True)
            for column in file.columns:
                if str(table[column].type) not in ("string", "large_string"):
                    raise UserError(
                        f"{file.name}: {column}: found {table[column].type}, expected strings"
                    )
                if table[column].null_count:
                    row = rows_before + table[column].to_pylist().index(None) + 1
                    raise UserError(
                        f"{file.name}, row {row}: {column}: found no value, expected a string"
                    )
            rows_before += len(table)
            yield table


def joined(tables: Sequence["pyarrow.Table"]) -> "pyarrow.Table":
    """Concatenate tables; a column whose types differ becomes text."""
    import pyarrow

    try:
        return pyarrow.concat_tables(tables, promote_options="permissive")
    except pyarrow.ArrowException:
        fields = list(zip(*(table.schema for table in tables), strict=True))
        texts = [
            one[0] if len(set(one)) == 1 else one[0].with_type(pyarrow.string()) for one in fields
        ]
        return pyarrow.concat_tables([table.cast(pyarrow.schema(texts)) for table in tables])


def _opened(file: TextFile) -> io.BufferedReader:
    """Open a file; decode UTF-16 with a byte order mark as UTF-8."""
    path = str(file.path)
    opened: Any
    if path == STDIN:
        check_open("stdin", "standard input")
        opened = sys.stdin.buffer
    elif is_remote(path) or path.lower().endswith(_COMPRESSED):
        import fsspec

        address = path if is_remote(path) else os.path.abspath(path)
        opened = fsspec.open(address, compression="infer").open()
    else:
        # fsspec would look for the end of the file, but a pipe has none.
        opened = open(path, "rb")  # noqa: SIM115
    stream = io.BufferedReader(opened, _BLOCK)
    if file.file_format == "parquet":
        return stream
    start = stream.peek()[:4]
    has_mark = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if start == b"\xff\xfe\0\0" or (b"\0" in start and not has_mark):
        found = "found NUL bytes, as in UTF-32, or UTF-16 without a mark"
        raise ValueError(f"{found}, expected UTF-8, or UTF-16 with a mark")
    if not has_mark:
        return stream
    import pyarrow

    utf8 = pyarrow.transcoding_input_stream(pyarrow.PythonFile(stream, "r"), "utf-16", "utf-8")
    return io.BufferedReader(utf8, _BLOCK)


def _lines(stream: io.BufferedReader, name: str) -> Iterator[str]:
    """Yield a UTF-8 file's lines; raise `UserError` with the line's number."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            found = f"found the bytes {line[error.start : error.start + 4]!r}, which are not utf-8"
            raise UserError(
                f"{name}, line {number}: {found}, expected UTF-8, or UTF-16 with a mark"
            ) from error


def _read_text(file: TextFile, stream: io.BufferedReader) -> Iterator[list["pyarrow.Array"]]:
    file.names_among([SENTENCE])
    if b"\r" in stream.peek().partition(b"\n")[0].rstrip(b"\r"):
        logger.warning("%s: line 1 holds carriage returns, which end no line here", file.name)
    yield from _text_arrays([line.rstrip("\r\n")] for line in _lines(stream, file.name))


def _text_arrays(rows: Iterator[Sequence[str]]) -> Iterator[list["pyarrow.Array"]]:
    """Yield batches of the columns of rows."""
    import pyarrow

    while chunk := list(itertools.islice(rows, BLOCK_ROWS)):
        yield [pyarrow.array(column, pyarrow.string()) for column in zip(*chunk, strict=True)]


def _read_fields(file: TextFile, stream: io.BufferedReader) -> Iterator[list["pyarrow.Array"]]:
    """Read TSV or CSV."""
    rows = _fields(file, stream)
    try:
        line, first = next(rows)
    except StopIteration:
        raise UserError(f"{file.name}: found no row, expected one or more") from None
    if file.no_header:
        positions = [int(column) - 1 for column in file.wanted]
        if max(positions) >= len(first):
            raise UserError(f"{file.name}: found {len(first)} columns, not {max(positions) + 1}")
        rows = itertools.chain([(line, first)], rows)
    else:
        positions = [first.index(name) for name in file.names_among(first)]
        if any(column not in first for column in file.wanted) and file.names.no_header:
            logger.info(
                "%s: the first row has the columns' names: %s; %s if it has none",
                file.name,
                ", ".join(first),
                file.names.no_header,
            )
    yield from _text_arrays(_chosen(file, rows, len(first), positions))


def _fields(file: TextFile, stream: io.BufferedReader) -> Iterator[tuple[int, list[str]]]:
    """Yield the line's number and the fields of each row."""
    is_csv = file.file_format == "csv"
    csv.field_size_limit(_BLOCK)
    rows = csv.reader(
        _lines(stream, file.name),
        delimiter=_delimiter(stream) if is_csv else "\t",
        quoting=csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE,
        strict=True,
    )
    width = 0
    line = 1
    try:
        for row in rows:
            width = width or len(row)
            if row or (not is_csv and width == 1):
                # In a TSV of one column, an empty line is an empty text.
                yield line, row or [""]
            line = rows.line_num + 1
    except csv.Error as error:
        reasons = {
            "unexpected end of data": "found a quote that is not closed",
            "field larger": "found a field of more than 4 MB; a quote may not be closed",
            "new-line": "found a carriage return that ends no line",
            "expected after": "found a quote inside a quoted field, where it must be doubled",
        }
        found = next((words for text, words in reasons.items() if text in str(error)), str(error))
        raise UserError(f"{file.name}, line {line}: {found}") from error


def _delimiter(stream: io.BufferedReader) -> str:
    """Return what separates the fields of a CSV file's first row."""
    first = stream.peek().decode("utf-8-sig", "replace").lstrip("\r\n").partition("\n")[0]
    unquoted = re.sub('"[^"]*"', "", first)
    return next((one for one in ",;\t|" if one in unquoted), ",")


def _chosen(
    file: TextFile, rows: Iterator[tuple[int, list[str]]], width: int, positions: Sequence[int]
) -> Iterator[list[str]]:
    """Yield some fields of each row; check their number."""
    is_csv = file.file_format == "csv"
    is_quoted = is_csv
    least = width if is_csv else max(positions) + 1
    for line, row in rows:
        # TSV files of the tasks have more fields in some rows.
        if len(row) < least or (is_csv and len(row) > width):
            expected = f"{least} as in the first row" if is_csv else f"{least} or more"
            raise UserError(
                f"{file.name}, line {line}: found {len(row)} fields, expected {expected}: "
                f"{','.join(row)!r:.60}"
            )
        if not is_quoted and (quoted := next(filter(_is_quoted, row), None)):
            is_quoted = True
            advice = "TSV has no quotes; if these are not part of the text, make it a .csv file"
            logger.warning("%s: %.40s looks quoted, but %s", file.name, quoted, advice)
        yield [row[position] for position in positions]


def _is_quoted(field: str) -> bool:
    """True if quotes enclose a quote, a tab or a line break."""
    return field.startswith('"') and ('""' in field[1:-1] or field.count('"') % 2 == 1)


def _read_json_lines(file: TextFile, stream: io.BufferedReader) -> Iterator[list["pyarrow.Array"]]:
    objects = _json_rows(file, stream)
    while block := list(itertools.islice(objects, BLOCK_ROWS)):
        yield [_json_column(values) for values in zip(*block, strict=True)]


def _json_rows(file: TextFile, stream: io.BufferedReader) -> Iterator[list[object]]:
    """Yield the wanted values of each object, None for a missing one."""
    # Only files of JSON lines need msgspec.
    import msgspec

    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    wanted = file.wanted
    for number, line in enumerate(_lines(stream, file.name), start=1):
        if line.strip():
            with reading(f"{file.name}, line {number}", "a JSON object"):
                try:
                    found: dict[str, Any] = decoder.decode(line)
                    row = [
                        msgspec.json.decode(found[name]) if name in found else None
                        for name in wanted
                    ]
                except msgspec.DecodeError:
                    # Python's json writes NaN and lone surrogates, which are not JSON.
                    found = msgspec.convert(json.loads(line, strict=False), dict)
                    row = [found.get(name) for name in wanted]
                    "".join(text for text in row if isinstance(text, str)).encode()
            for name, value in zip(wanted, row, strict=True):
                if name in file.columns and name not in found:
                    at_line = dataclasses.replace(file, path=f"{file.name}, line {number}")
                    raise at_line.no_column(name, [*found])
                if name in file.columns and not isinstance(value, str | None):
                    raise UserError(
                        f"{file.name}, line {number}: {name}: found {value!r:.40}, expected a "
                        "string"
                    )
            yield row


def _json_column(values: Sequence[Any]) -> "pyarrow.Array":
    """Return JSON values by their type; if types differ, as text."""
    import msgspec
    import pyarrow

    with contextlib.suppress(pyarrow.ArrowException, OverflowError):
        return pyarrow.array(values)
    texts = (
        value if isinstance(value, str | None) else msgspec.json.encode(value).decode()
        for value in values
    )
    return pyarrow.array(list(texts), pyarrow.string())


def _read_parquet(file: TextFile, stream: io.BufferedReader) -> Iterator[list["pyarrow.Array"]]:
    import pyarrow.parquet

    # Parquet is read from its end, so a pipe must be read whole.
    parquet = pyarrow.parquet.ParquetFile(
        stream if stream.seekable() else io.BytesIO(stream.read())
    )
    names = file.names_among(parquet.schema_arrow.names)
    texts = "dictionary<values=.*string|string_view"
    for batch in parquet.iter_batches(BLOCK_ROWS, columns=names):
        arrays = []
        for column, name in zip(file.wanted, names, strict=True):
            one = batch.column(name)
            # Parquet may store texts as categories, views or bytes; a kept column of bytes may hold
            # anything.
            kinds = f"{texts}|(large_)?binary" if column in file.columns else texts
            arrays.append(one.cast(pyarrow.string()) if re.match(kinds, str(one.type)) else one)
        yield arrays


# The keys are the values of `INPUT_FORMATS`; a reader yields batches of the wanted columns.
_READERS: dict[str, Callable[[TextFile, io.BufferedReader], Iterator[list["pyarrow.Array"]]]] = {
    "text": _read_text,
    "tsv": _read_fields,
    "csv": _read_fields,
    "jsonl": _read_json_lines,
    "parquet": _read_parquet,
}
