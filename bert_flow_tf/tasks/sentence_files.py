"""Read sentences from files or iterables in batches."""

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bert_flow_tf.common.errors import ArgumentError, UserError, check_open, suggest
from bert_flow_tf.common.reading import AnyPath, is_remote, reading
from bert_flow_tf.vectors.texts import BLOCK_ROWS

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

STDIN = "-"
INPUT_FORMATS = {
    ".txt": "text",
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}
INPUT_FORMATS |= dict.fromkeys((".ndjson", ".json"), "jsonl")
SENTENCE = "sentence"
# A first row with one of these fields holds the column names.
_HEADER_NAMES = {
    "sentence",
    "sentences",
    "text",
    "id",
    "index",
    "label",
    "score",
    "gold_label",
    "title",
    "content",
}
_HEADER_NAMES |= {f"{name}{i}" for name in ("sentence", "text", "question") for i in (1, 2)}
_HEADER_NAMES |= {
    "premise",
    "hypothesis",
    "question",
    "query",
    "pair_id",
    "sentence_a",
    "sentence_b",
}
# Files of pairs have these columns by default.
PAIR = ["sentence1", "sentence2", "score"]
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# This many bytes are read at once; a row of CSV must not be longer.
_BLOCK = 1 << 22


def read_sentences(
    path: AnyPath,
    *,
    file_format: str | None = None,
    columns: Sequence[str] | None = None,
    no_header: bool = False,
) -> Iterator[Any]:
    """Iterate over the sentences of a file.

    With several `columns`, yield lists of strings, else strings. Text has one sentence per line,
    JSON lines one object. The first row of TSV and CSV holds the column names; if `columns` are
    numbers, it is data unless a field is one of `_HEADER_NAMES`. Text and TSV have no quoting; CSV
    has the syntax of `pyarrow.csv`, and semicolons, tabs or bars between its fields if the first
    row has no comma. Text is UTF-8, or UTF-16 with a byte order mark.

    Args:
      path: a file, perhaps compressed as `.gz`, an address that fsspec opens, or `-` for standard
        input.
      file_format: a value of `INPUT_FORMATS`; None to infer it from the file's ending (standard
        input is text).
      columns: column names, keys of JSON, or numbers from 1; None for `sentence`, the column of
        text.
      no_header: True if the first row of TSV or CSV is data.

    Raises:
      UserError: the file is unreadable, or a row or column is invalid. The call itself checks only
        the first batch.
    """
    names = columns or [SENTENCE]
    file_format = file_format or ("text" if str(path) == STDIN else input_format(path))
    tables = _tables(path, file_format, names, [], no_header)
    rows = (
        row
        for table in tables
        for row in zip(*(table[name].to_pylist() for name in names), strict=True)
    )
    values = map(list, rows) if len(names) > 1 else (row[0] for row in rows)
    return itertools.chain(list(itertools.islice(values, 1)), values)


def read_tables(
    path: AnyPath,
    *,
    file_format: str,
    column: str | None,
    kept: Sequence[str],
    rows: int,
    no_header: bool = False,
) -> "Iterator[tuple[list[str], pyarrow.Table]]":
    """Yield up to `rows` sentences and a table of their `kept` columns."""
    pending = None
    for table in _tables(path, file_format, [column or SENTENCE], kept, no_header):
        pending = table if pending is None else joined([pending, table])
        while len(pending) >= rows:
            yield pending.column(0)[:rows].to_pylist(), pending[:rows].select(list(kept))
            pending = pending[rows:]
    if pending is not None and len(pending):
        yield pending.column(0).to_pylist(), pending.select(list(kept))


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


def input_format(path: AnyPath) -> str:
    """Return the format of a file by its ending, perhaps compressed."""
    return format_of_ending(_uncompressed(path), INPUT_FORMATS, ", or --input_format")


def pairs_format(path: AnyPath) -> str:
    """Return the format of a file with columns, by its ending."""
    formats = {ending: name for ending, name in INPUT_FORMATS.items() if name != "text"}
    return format_of_ending(_uncompressed(path), formats)


def first_row(path: AnyPath, file_format: str) -> list[str]:
    """Return the fields of a TSV or CSV file's first row."""
    with (
        reading(path, f"sentences in {file_format}"),
        io.BufferedReader(_open(path), _BLOCK) as stream,
    ):
        return _first_row(_utf8(stream), file_format)[0]


def has_known_ending(path: AnyPath) -> bool:
    return _uncompressed(path).suffix.lower() in INPUT_FORMATS


def _uncompressed(path: AnyPath) -> pathlib.Path:
    path = pathlib.Path(path)
    return path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path


def format_of_ending(path: AnyPath, formats: dict[str, str], advice: str = "") -> str:
    """Return the format of a file's ending; errors end with `advice`."""
    ending = pathlib.Path(path).suffix.lower()
    if ending not in formats:
        raise UserError(
            f"{path}: found the ending {ending!r}, expected {', '.join(formats)}{advice}"
        )
    return formats[ending]


def _tables(
    path: AnyPath, file_format: str, columns: Sequence[str], kept: Sequence[str], no_header: bool
) -> "Iterator[pyarrow.Table]":
    """Yield tables of string columns and kept columns."""
    import pyarrow

    name = "standard input" if str(path) == STDIN else str(path)
    wanted = [*dict.fromkeys([*columns, *kept])]
    rows_before = 0
    with (
        reading(name, f"sentences in {file_format}"),
        io.BufferedReader(_open(path), _BLOCK) as stream,
    ):
        if file_format != "parquet":
            stream = _utf8(stream)
        source = _Input(stream, name, columns, wanted, no_header)
        if no_header and not source.numbered:
            raise ArgumentError(
                f"no_header: {name}: found the column {wanted[0]}, expected a number"
            )
        for arrays in _READERS[file_format](source):
            table = pyarrow.table(arrays, wanted)
            # Parquet may hold bytes that are not UTF-8.
            table.validate(full=True)
            for column in columns:
                if str(table[column].type) not in ("string", "large_string"):
                    raise UserError(
                        f"{name}: {column}: found {table[column].type}, expected strings"
                    )
                if table[column].null_count:
                    row = rows_before + table[column].to_pylist().index(None) + 1
                    raise UserError(
                        f"{name}, row {row}: {column}: found no value, expected a string"
                    )
            rows_before += len(table)
            yield table


def _open(path: AnyPath) -> Any:
    if str(path) == STDIN:
        check_open("stdin", "standard input")
        return sys.stdin.buffer
    if not (is_remote(path) or str(path).lower().endswith(_COMPRESSED)):
        # fsspec would look for the end of the file, but a pipe has none.
        return open(path, "rb")
    import fsspec

    return fsspec.open(
        str(path) if is_remote(path) else os.path.abspath(path), compression="infer"
    ).open()


def _utf8(stream: io.BufferedReader) -> io.BufferedReader:
    """Return the stream in UTF-8; decode UTF-16 with a byte order mark."""
    import pyarrow

    start = stream.peek()[:4]
    has_mark = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if start == b"\xff\xfe\0\0" or (b"\0" in start and not has_mark):
        found = "found NUL bytes, as in UTF-32, or UTF-16 without a mark"
        raise ValueError(f"{found}, expected UTF-8, or UTF-16 with a mark")
    if not has_mark:
        return stream
    utf8 = pyarrow.transcoding_input_stream(pyarrow.PythonFile(stream, "r"), "utf-16", "utf-8")
    return io.BufferedReader(utf8, _BLOCK)


def _first_row(stream: io.BufferedReader, file_format: str) -> tuple[list[str], str]:
    """Return the fields and the delimiter of the first row."""
    text = stream.peek().decode("utf-8-sig", "replace")
    line = text.partition("\n")[0].rstrip("\r")
    if file_format == "tsv":
        return line.split("\t"), "\t"
    delimiter = next((one for one in ",;\t|" if one in line), ",")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), []), delimiter


def _is_quoted(field: str) -> bool:
    """True if quotes enclose a quote, a tab or a line break."""
    return field.startswith('"') and ('""' in field[1:-1] or field.count('"') % 2 == 1)


def _lines(stream: io.BufferedReader, path: str) -> Iterator[str]:
    """Yield a UTF-8 file's lines; raise `UserError` with the line's number."""
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if number == 1 and "\r" in text:
                logger.warning("%s: line 1 holds carriage returns, which end no line here", path)
            yield text
        except UnicodeDecodeError as error:
            found = f"found the bytes {line[error.start : error.start + 4]!r}, which are not utf-8"
            raise UserError(
                f"{path}, line {number}: {found}, expected UTF-8, or UTF-16 with a mark"
            ) from error


def _json_rows(
    stream: io.BufferedReader, path: str, columns: Sequence[str], wanted: Sequence[str]
) -> Iterator[list[object]]:
    """Yield the wanted values of each object, None for a missing one."""
    # `runtime` imports this module where msgspec is not installed.
    import msgspec

    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    for number, line in enumerate(_lines(stream, path), start=1):
        if line.strip():
            with reading(f"{path}, line {number}", "a JSON object"):
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
            if any(name not in found for name in columns):
                _names(f"{path}, line {number}", [*found], columns)
            for name, value in zip(wanted, row, strict=True):
                if name in columns and not isinstance(value, str | None):
                    raise UserError(
                        f"{path}, line {number}: {name}: found {value!r:.40}, expected a string"
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


def _names(path: str, first: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the columns' names; turn numbers into names of the first row."""
    numbered = {str(i): one for i, one in enumerate(first, 1)}
    names = [column if column in first else numbered.get(column, column) for column in wanted]
    if repeated := [
        column for column in names if first.count(column) > 1 and column not in numbered
    ]:
        raise UserError(
            f"{path}: found the column {repeated[0]} {first.count(repeated[0])} times, expected it "
            "once"
        )
    if missing := [column for column in names if column not in first]:
        found = ", ".join(first) + ("" if missing[0] == SENTENCE else f", not {missing[0]}")
        likely = next(
            (one for one in first if re.search("text|sentence", one, re.IGNORECASE)), "NAME"
        )
        # Pairs have a score, but those of `similarity`.
        of_pairs = "--columns A,B" if list(wanted) == PAIR[:2] else "--pair_columns A,B,SCORE"
        option = {SENTENCE: f"--column {likely}", **dict.fromkeys(PAIR, of_pairs)}
        hint = f"; choose with {option[missing[0]]}" if missing[0] in option else ""
        raise UserError(f"{path}: found the columns {found}{hint}{suggest(missing[0], first)}")
    return names


@dataclasses.dataclass(frozen=True)
class _Input:
    """An open file, and the columns to read from it.

    Attributes:
      path: the file's name in messages.
      columns: columns of sentences.
      wanted: these columns and the kept ones.
      no_header: True if the first row of TSV or CSV is data.
    """

    stream: io.BufferedReader
    path: str
    columns: Sequence[str]
    wanted: list[str]
    no_header: bool

    @property
    def numbered(self) -> bool:
        """True if all columns are numbers from 1."""
        return all(column.isdecimal() and int(column) > 0 for column in self.wanted)

    def names(self, first: Sequence[str]) -> list[str]:
        """Return the columns' names, which are those of `first`."""
        return _names(self.path, first, self.wanted)


def _read_text(source: _Input) -> Iterator[list["pyarrow.Array"]]:
    if source.no_header:
        positions = [int(column) - 1 for column in source.wanted]
    else:
        positions = [0 for _ in source.names([SENTENCE])]
    rows = ([line] for line in _lines(source.stream, source.path))
    yield from _text_arrays(rows, positions)


def _read_tsv(source: _Input) -> Iterator[list["pyarrow.Array"]]:
    first, _ = _first_row(source.stream, "tsv")
    has_header = _has_header(source, first)
    if has_header:
        positions = [first.index(name) for name in source.names(first)]
    else:
        positions = [int(column) - 1 for column in source.wanted]
    rows = (line.split("\t") for line in _lines(source.stream, source.path))
    if len(first) > 1:
        # As in CSV, an empty line is no row; where a row is one text, it is an empty one.
        rows = (row for row in rows if row != [""])
    if has_header:
        next(rows, None)
    yield from _text_arrays(_warning_of_quotes(rows, source.path), positions)


def _read_csv(source: _Input) -> Iterator[list["pyarrow.Array"]]:
    import pyarrow.csv

    if b'\\"' in source.stream.peek():
        logger.warning('%s: found \\", but CSV doubles the quotes in a field', source.path)
    first, delimiter = _first_row(source.stream, "csv")
    has_header = _has_header(source, first)
    if not has_header:
        # These names are pyarrow's own, which count from 0.
        names = [f"f{int(column) - 1}" for column in source.wanted]
    else:
        names = source.names(first) if first else source.wanted
    texts = dict.fromkeys(names, pyarrow.string())
    batches = pyarrow.csv.open_csv(
        source.stream,
        pyarrow.csv.ReadOptions(
            use_threads=False, block_size=_BLOCK, autogenerate_column_names=not has_header
        ),
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pyarrow.csv.ConvertOptions(column_types=texts, include_columns=list(texts)),
    )
    yield from _stored_arrays(source, batches, names)


def _read_json_lines(source: _Input) -> Iterator[list["pyarrow.Array"]]:
    objects = _json_rows(source.stream, source.path, source.columns, source.wanted)
    while block := list(itertools.islice(objects, BLOCK_ROWS)):
        yield [_json_column(values) for values in zip(*block, strict=True)]


def _read_parquet(source: _Input) -> Iterator[list["pyarrow.Array"]]:
    import pyarrow.parquet

    stream = source.stream
    # Parquet is read from its end, so a pipe must be read whole.
    file = pyarrow.parquet.ParquetFile(stream if stream.seekable() else io.BytesIO(stream.read()))
    names = source.wanted if source.no_header else source.names(file.schema_arrow.names)
    yield from _stored_arrays(source, file.iter_batches(BLOCK_ROWS, columns=names), names)


# The keys are the values of `INPUT_FORMATS`; a reader yields batches of the wanted columns.
_READERS: dict[str, Callable[[_Input], Iterator[list["pyarrow.Array"]]]] = {
    "text": _read_text,
    "tsv": _read_tsv,
    "csv": _read_csv,
    "jsonl": _read_json_lines,
    "parquet": _read_parquet,
}


def _has_header(source: _Input, first: Sequence[str]) -> bool:
    """True if the first row holds column names.

    Raises:
      UserError: it has fewer columns than a wanted number.
    """
    known = [one for one in first if one.strip().lower() in _HEADER_NAMES]
    if source.numbered and known and not source.no_header:
        logger.warning(
            "%s: the first row, with %s, is taken as column names; --no_header if not",
            source.path,
            known[0],
        )
    if not (source.no_header or (source.numbered and not known)):
        return True
    if missing := [column for column in source.wanted if int(column) > len(first)]:
        raise UserError(f"{source.path}: found {len(first)} columns, not {missing[0]}")
    return False


def _warning_of_quotes(rows: Iterable[list[str]], path: str) -> Iterator[list[str]]:
    """Yield rows of TSV; warn of the first field that looks quoted."""
    is_quoted = False
    for row in rows:
        if not is_quoted and (quoted := next(filter(_is_quoted, row), None)):
            is_quoted = True
            advice = "TSV has no quotes; if these are not part of the text, make it a .csv file"
            logger.warning("%s: %.40s looks quoted, but %s", path, quoted, advice)
        yield row


def _text_arrays(
    rows: Iterator[list[str]], positions: Sequence[int]
) -> Iterator[list["pyarrow.Array"]]:
    """Yield batches of some columns of rows."""
    import pyarrow

    while chunk := list(itertools.islice(rows, BLOCK_ROWS)):
        if short := ["\t".join(row) for row in chunk if len(row) <= max(positions)]:
            raise ValueError(
                f"found the line {short[0]!r:.60}, expected {max(positions) + 1} or more fields"
            )
        yield [
            pyarrow.array([row[position] for row in chunk], pyarrow.string())
            for position in positions
        ]


def _stored_arrays(
    source: _Input, batches: Iterable["pyarrow.RecordBatch"], names: Sequence[str]
) -> Iterator[list["pyarrow.Array"]]:
    """Yield batches of pyarrow's columns, with texts as strings."""
    import pyarrow

    texts = "dictionary<values=.*string|string_view"
    for batch in batches:
        arrays = []
        for column, name in zip(source.wanted, names, strict=True):
            one = batch.column(name)
            # Parquet may store texts as categories, views or bytes; a kept column of bytes may hold
            # anything.
            kinds = f"{texts}|(large_)?binary" if column in source.columns else texts
            arrays.append(one.cast(pyarrow.string()) if re.match(kinds, str(one.type)) else one)
        yield arrays
