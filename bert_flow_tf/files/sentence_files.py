"""Sentences in files of text, TSV, CSV, JSON lines or Parquet, read in batches, or in an iterable."""

import codecs
import csv
import io
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

import msgspec

from bert_flow_tf.errors import ArgumentError, UserError, nearest
from bert_flow_tf.files.reading import is_remote, reading

if TYPE_CHECKING:
    import pyarrow

Path = str | os.PathLike[str]

STDIN = "-"
INPUT_FORMATS = {".txt": "text", ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
SENTENCE = "sentence"
# Sentences of a stream that are sorted by length together, and the most of it that is in memory at a time.
PART = 16384
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_NUMBER = re.compile("[1-9][0-9]{0,8}")
# Bytes that are read at once; a row of CSV or JSON has at most so many.
_BLOCK = 1 << 22


def read_sentences(
    path: Path, *, file_format: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Iterator over the sentences of a file, in its order: strings, or lists of strings if there are several columns.

    Text holds one sentence per line. TSV and CSV begin with a line of column names, unless columns are numbers, from 1.
    A line of JSON holds an object. Nothing is quoted in text and TSV; CSV is that of `pyarrow.csv`.

    Args:
      path: the file, also packed as `.gz`, or an address that fsspec opens; `-` is standard input.
      file_format: a value of `INPUT_FORMATS`; None for what the file's ending says, and text for standard input.
      columns: column names, keys, or numbers in TSV and CSV; None for `sentence`. Text has none.

    Raises:
      UserError: the file cannot be read, or a row or a column is not as expected: by the call for the first batch, for
        later ones when they are reached.
    """
    file_format = file_format or ("text" if str(path) == STDIN else input_format(path))
    if file_format == "text" and columns is not None:
        raise ArgumentError(f"column: found {', '.join(columns)} for text, which has no columns, expected none")
    batches = _batches(path, file_format, columns or [SENTENCE], [])
    lists = ([one if isinstance(one, tuple) else one.to_pylist() for one in batch] for batch in batches)
    rows = (row for batch in lists for row in zip(*batch, strict=True))
    values = map(list, rows) if columns is not None and len(columns) > 1 else (row[0] for row in rows)
    return itertools.chain(list(itertools.islice(values, 1)), values)


def read_tables(
    path: Path, *, file_format: str, column: str | None, kept: Sequence[str], rows: int
) -> "Iterator[tuple[list[str], pyarrow.Table]]":
    """As `read_sentences`, with kept columns, strings but in JSON and Parquet, of so many rows at a time."""
    import pyarrow

    names, left = list(dict.fromkeys([column or SENTENCE, *kept])), None
    for batch in _batches(path, file_format, [column or SENTENCE], kept):
        table = pyarrow.table([pyarrow.array(one) if isinstance(one, tuple) else one for one in batch], names)
        left = table if left is None else pyarrow.concat_tables([left, table])
        while len(left) >= rows:
            yield left.column(0)[:rows].to_pylist(), left[:rows].select(list(kept))
            left = left[rows:]
    if left is not None and len(left):
        yield left.column(0).to_pylist(), left.select(list(kept))


def input_format(path: Path) -> str:
    """Name of the format that the ending of a file of sentences says; a packed file has two endings."""
    path = pathlib.Path(path)
    return format_of_ending(path.with_suffix("") if path.suffix in _COMPRESSED else path, INPUT_FORMATS, "input_format")


def format_of_ending(path: Path, formats: dict[str, str], option: str) -> str:
    """Name of the format that a file's ending says, else a `UserError`; `option` is what a command takes instead."""
    ending = pathlib.Path(path).suffix
    if ending not in formats:
        raise UserError(f"{path}: found the ending {ending!r}, expected {', '.join(formats)}, or --{option}")
    return formats[ending]


def matching(pattern: str) -> list[str]:
    """Addresses of the files that fit a pattern, in the order of their names; errors as of `reading`."""
    import fsspec

    with reading(pattern, "addresses of files"):
        system, name = fsspec.url_to_fs(pattern)
        return sorted(system.unstrip_protocol(found) for found in system.glob(name))


def sentence_list(sentences: Iterable[str], name: str = "sentences") -> list[str]:
    """list of the strings of an iterable, checked as `parts` checks them."""
    return [sentence for part in parts(sentences, name) for sentence in part]


def parts(sentences: Iterable[str], name: str = "sentences") -> Iterator[list[str]]:
    """Yield lists of up to `PART` strings of an ordered iterable; a `UserError` names an element that is no text."""
    if isinstance(sentences, str | bytes | dict | Set) or not isinstance(sentences, Iterable):
        raise UserError(f"{name}: found {_shown(sentences)}, expected strings in a list or another ordered iterable")
    iterator, position = iter(sentences), 0
    while part := list(itertools.islice(iterator, PART)):
        for i, sentence in enumerate(part, start=position):
            if not isinstance(sentence, str):
                raise UserError(f"{name}[{i}]: found {_shown(sentence)}, expected a string")
            try:
                sentence.encode()
            except UnicodeEncodeError as error:
                raise UserError(f"{name}[{i}]: found text that UTF-8 cannot hold: {error}") from error
        position += len(part)
        yield part


def _shown(value: object) -> str:
    return f"{type(value).__name__} {repr(value).partition(chr(10))[0][:60]}"


def _batches(path: Path, file_format: str, columns: Sequence[str], kept: Sequence[str]) -> Iterator[Sequence]:
    """Yield the columns, then other kept ones, of some rows at a time: tuples of strings, or Arrow arrays."""
    name = "standard input" if str(path) == STDIN else str(path)
    wanted, before = list(dict.fromkeys([*columns, *kept])), 0
    with reading(name, f"sentences in {file_format}"), _open(path) as stream:
        if file_format in ("text", "tsv"):
            rows = _text_rows(stream, name, wanted if file_format == "tsv" else [])
            while some := list(itertools.islice(rows, PART)):
                yield list(zip(*some, strict=True))
            return
        for batch in _arrow_batches(stream, name, file_format, columns, wanted):
            for column, array in zip(columns, batch, strict=False):
                # Parquet may hold bytes that are no UTF-8.
                array.validate(full=True)
                if str(array.type) not in ("string", "large_string"):
                    raise UserError(f"{name}: {column}: found {array.type}, expected strings")
                if array.null_count:
                    row = before + array.is_null().to_pylist().index(True) + 1
                    raise UserError(f"{name}, row {row}: {column}: found no value, expected a string")
            before += len(batch[0])
            yield batch


def _open(path: Path) -> io.BufferedReader:
    file: Any = sys.stdin.buffer
    if is_remote(path) or str(path).endswith(_COMPRESSED):
        import fsspec

        file = fsspec.open(str(path), "rb", compression="infer").open()
    elif str(path) != STDIN:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 (the caller closes it)
    return io.BufferedReader(file, _BLOCK)


def _text_rows(stream: io.BufferedReader, name: str, columns: Sequence[str]) -> Iterator[list[str]]:
    """Yield the columns of each line of TSV; the line itself without columns."""
    header = bool(columns) and not _are_numbers(columns)
    positions = [int(column) - 1 for column in columns] if columns and not header else [0]
    if header:
        names = stream.readline().removeprefix(codecs.BOM_UTF8).decode("utf-8").rstrip("\r\n").split("\t")
        positions = _positions(name, columns, names)
    for number, line in enumerate(stream, start=1 + header):
        try:
            text = line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}, line {number}: byte {error.start} is not UTF-8") from error
        text = text.removesuffix("\n").removesuffix("\r")
        fields = text.split("\t") if columns else [text]
        if len(fields) <= max(positions):
            raise UserError(f"{name}, line {number}: found {len(fields)} fields, expected {max(positions) + 1} or more")
        yield [fields[position] for position in positions]


def _arrow_batches(
    stream: io.BufferedReader, name: str, file_format: str, columns: Sequence[str], wanted: Sequence[str]
) -> Iterator[list["pyarrow.Array"]]:
    """Yield the wanted columns, of which the first ones are strings."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    if file_format == "parquet":
        # Parquet is read from its end: a pipe is taken whole.
        file = pyarrow.parquet.ParquetFile(stream if stream.seekable() else io.BytesIO(stream.read()))
        _positions(name, wanted, file.schema_arrow.names)
        batches: Iterable = file.iter_batches(PART, columns=list(wanted))
    else:
        first = stream.peek(_BLOCK).removeprefix(codecs.BOM_UTF8).partition(b"\n")[0]
    if file_format == "csv":
        fields = next(csv.reader([first.decode("utf-8")]))
        if numbers := _are_numbers(wanted):
            _positions(name, wanted, [str(i + 1) for i in range(len(fields))])
            wanted = [f"f{int(column) - 1}" for column in wanted]
        else:
            _positions(name, wanted, fields)
        batches = pyarrow.csv.open_csv(
            stream,
            pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=numbers),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(wanted, pyarrow.string()), include_columns=wanted),
        )
    elif file_format == "jsonl":
        _positions(name, wanted, list(msgspec.json.decode(first or b"{}", type=dict)))
        schema = pyarrow.schema([(column, pyarrow.string()) for column in columns])
        others = "infer" if len(wanted) > len(columns) else "ignore"
        batches = pyarrow.json.open_json(
            stream,
            pyarrow.json.ReadOptions(use_threads=False, block_size=_BLOCK),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others),
        )
    for batch in batches:
        yield [batch.column(column) for column in wanted]


def _are_numbers(columns: Sequence[str]) -> bool:
    return all(map(_NUMBER.fullmatch, columns))


def _positions(name: str, columns: Sequence[str], found: Sequence[str]) -> list[int]:
    """Positions of the columns among those found; a `UserError` for a missing one."""
    for column in columns:
        if column not in found:
            others = ", ".join(found) or "none"
            raise UserError(f"{name}: found no column {column}, expected one of {others}{nearest(column, found)}")
    return [found.index(column) for column in columns]
