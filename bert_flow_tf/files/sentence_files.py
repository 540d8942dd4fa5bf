"""Sentences in files of text, TSV, CSV, JSON lines or Parquet, read in batches, or in an iterable."""

import io
import itertools
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any

from bert_flow_tf.errors import UserError, nearest
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
# Bytes that are read at once; a row of CSV or JSON has at most so many.
_BLOCK = 1 << 22


def read_sentences(
    path: Path, *, file_format: str | None = None, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Iterate over the sentences of a file, in its order: strings, or lists of strings for several columns.

    Text holds one sentence per line. TSV and CSV begin with a line of column names, unless columns are numbers, from 1.
    A line of JSON holds an object. Nothing is quoted in text and TSV; CSV is that of `pyarrow.csv`.

    Args:
      path: the file, also packed as `.gz`, or an address that fsspec opens; `-` is standard input.
      file_format: a value of `INPUT_FORMATS`; None for what the file's ending says, and text for standard input.
      columns: column names, keys, or numbers in TSV and CSV; None for `sentence`, the only one of text.

    Raises:
      UserError: the file cannot be read, or a row or a column is invalid: by the call for the first batch, for later
        ones when they are reached.
    """
    names, file_format = columns or [SENTENCE], file_format or ("text" if str(path) == STDIN else input_format(path))
    tables = _tables(path, file_format, names, [])
    rows = (row for table in tables for row in zip(*(table[name].to_pylist() for name in names), strict=True))
    values = map(list, rows) if len(names) > 1 else (row[0] for row in rows)
    return itertools.chain(list(itertools.islice(values, 1)), values)


def read_tables(
    path: Path, *, file_format: str, column: str | None, kept: Sequence[str], rows: int
) -> "Iterator[tuple[list[str], pyarrow.Table]]":
    """Read sentences with kept columns, strings but in JSON and Parquet, of so many rows at a time."""
    import pyarrow

    left = None
    for table in _tables(path, file_format, [column or SENTENCE], kept):
        left = table if left is None else pyarrow.concat_tables([left, table])
        while len(left) >= rows:
            yield left.column(0)[:rows].to_pylist(), left[:rows].select(list(kept))
            left = left[rows:]
    if left is not None and len(left):
        yield left.column(0).to_pylist(), left.select(list(kept))


def input_format(path: Path) -> str:
    """Return the format of a file of sentences by its ending; a packed file has two endings."""
    path = pathlib.Path(path)
    return format_of_ending(path.with_suffix("") if path.suffix in _COMPRESSED else path, INPUT_FORMATS, "input_format")


def format_of_ending(path: Path, formats: dict[str, str], option: str) -> str:
    """Return the format of a file's ending, else raise a `UserError`; `option` is what a command takes instead."""
    ending = pathlib.Path(path).suffix
    if ending not in formats:
        raise UserError(f"{path}: found the ending {ending!r}, expected {', '.join(formats)}, or --{option}")
    return formats[ending]


def matching(pattern: str) -> list[str]:
    """Return the sorted addresses of the files that fit a pattern; errors as of `reading`."""
    import fsspec

    with reading(pattern, "addresses of files"):
        system, name = fsspec.url_to_fs(pattern)
        return sorted(system.unstrip_protocol(found) for found in system.glob(name))


def sentence_list(sentences: Iterable[str], name: str = "sentences") -> list[str]:
    """Return the strings of an iterable, checked as `parts` checks them."""
    return [sentence for part in parts(sentences, name) for sentence in part]


def parts(sentences: Iterable[str], name: str = "sentences") -> Iterator[list[str]]:
    """Yield lists of up to `PART` strings of an ordered iterable; a `UserError` names an element that is no text."""
    if isinstance(sentences, str | bytes | dict | Set) or not isinstance(sentences, Iterable):
        found = f"{type(sentences).__name__} {sentences!r:.60}"
        raise UserError(f"{name}: found {found}, expected strings in a list or another ordered iterable")
    numbered = enumerate(sentences)
    while part := list(itertools.islice(numbered, PART)):
        for i, sentence in part:
            if not isinstance(sentence, str):
                raise UserError(f"{name}[{i}]: found {type(sentence).__name__} {sentence!r:.60}, expected a string")
        yield [sentence for _, sentence in part]


def _tables(path: Path, file_format: str, columns: Sequence[str], kept: Sequence[str]) -> "Iterator[pyarrow.Table]":
    """Yield some rows at a time of the columns, which hold strings, and of other kept ones."""
    import pyarrow

    name, wanted, before = "standard input" if str(path) == STDIN else str(path), [*dict.fromkeys([*columns, *kept])], 0
    with reading(name, f"sentences in {file_format}"), io.BufferedReader(_open(path), _BLOCK) as stream:
        for arrays in _arrays(stream, file_format, columns, wanted):
            table = pyarrow.table(arrays, wanted)
            # Parquet may hold bytes that are no UTF-8.
            table.validate(full=True)
            for column in columns:
                if str(table[column].type) not in ("string", "large_string"):
                    raise UserError(f"{name}: {column}: found {table[column].type}, expected strings")
                if table[column].null_count:
                    row = before + table[column].to_pylist().index(None) + 1
                    raise UserError(f"{name}, row {row}: {column}: found no value, expected a string")
            before += len(table)
            yield table


def _open(path: Path) -> Any:
    if str(path) == STDIN:
        return sys.stdin.buffer
    if not (is_remote(path) or str(path).endswith(_COMPRESSED)):
        # fsspec looks for a file's end, which a pipe does not have.
        return open(path, "rb", buffering=0)
    import fsspec

    return fsspec.open(str(path) if is_remote(path) else os.path.abspath(path), compression="infer").open()


def _arrays(
    stream: io.BufferedReader, file_format: str, columns: Sequence[str], wanted: Sequence[str]
) -> Iterator[list["pyarrow.Array"]]:
    """Yield the wanted columns, of which the first ones are strings."""
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    numbers = all(column.isdecimal() and int(column) > 0 for column in wanted)
    names = list(wanted)
    if file_format in ("text", "tsv"):
        lines = io.TextIOWrapper(stream, "utf-8-sig", newline="\n")
        rows = (line.rstrip("\r\n").split("\t" if file_format == "tsv" else "\n") for line in lines)
        found = [] if numbers else [SENTENCE] if file_format == "text" else next(rows, [])
        if missing := [column for column in names if column not in found and not numbers]:
            raise ValueError(f"no column {missing[0]}, expected one of {', '.join(found)}{nearest(missing[0], found)}")
        positions = [int(column) - 1 if numbers else found.index(column) for column in names]
        while some := list(itertools.islice(rows, PART)):
            if short := [row for row in some if len(row) <= max(positions)]:
                raise ValueError(f"found the line {short[0]}, expected {max(positions) + 1} or more fields")
            yield [pyarrow.array([row[position] for row in some], pyarrow.string()) for position in positions]
        return
    if file_format == "parquet":
        # Parquet is read from its end: a pipe is taken whole.
        file = pyarrow.parquet.ParquetFile(stream if stream.seekable() else io.BytesIO(stream.read()))
        batches: Iterable = file.iter_batches(PART, columns=names)
    elif file_format == "csv":
        names = [f"f{int(column) - 1}" for column in wanted] if numbers else names
        batches = pyarrow.csv.open_csv(
            stream,
            pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, autogenerate_column_names=numbers),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()), include_columns=names),
        )
    else:
        schema = pyarrow.schema([(column, pyarrow.string()) for column in columns])
        others = "infer" if len(wanted) > len(columns) else "ignore"
        batches = pyarrow.json.open_json(
            stream,
            pyarrow.json.ReadOptions(use_threads=False, block_size=_BLOCK),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others),
        )
    for batch in batches:
        yield [batch.column(column) for column in names]
