"""Shards: files of sentences cut into parts of so many rows, each read by itself, on whatever machine."""

import glob
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import msgspec

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.embedding_files import EMBEDDING
from bert_flow_tf.files.reading import cannot_be_read, open_file
from bert_flow_tf.files.remote import is_remote, matching, version_of
from bert_flow_tf.files.sentence_files import (
    FORMATS,
    PART,
    STDIN,
    Row,
    Span,
    column_positions,
    csv_rows,
    format_of_ending,
    has_names,
    open_parquet,
    open_sentences,
    read_lines,
    read_parquet_rows,
)

Path = str | os.PathLike[str]

# What a record of 100,000 parts takes is what `files.json_files` reads at most.
_MOST_SHARDS = 100_000
_EXPECTED = "a file of sentences"


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one file that are embedded together, and all that is needed to read them.

    Attributes:
      name: of the file that its embeddings go to; the order of names is that of the input.
      path, file_format, column, kept, span: as of `files.sentence_files.read_lines`.
      digest: SHA-256 of its bytes and of how they are read; of Parquet, of the file's and of the rows' numbers.
      stamp: `_stamp` of the file when it was cut.
    """

    name: str
    path: str
    file_format: str
    column: str | None
    kept: tuple[str, ...]
    span: Span
    digest: str
    stamp: str


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of files was cut into.

    Attributes:
      shards: in the order of the files and their rows.
      refused: for each file that cannot be cut, the name that the parts of it begin with, and its error.
    """

    shards: list[Shard]
    refused: dict[str, UserError]


def input_paths(inputs: Path | Iterable[Path]) -> list[str]:
    """Paths of the files that one path or pattern, as of `glob`, or several name; a pattern's in their names' order.

    Each may be an address, see `files.remote`.

    Raises:
      UserError: there is no such file, no file fits a pattern, or one is named twice.
    """
    inputs = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    paths: list[str] = []
    for name in (os.fspath(path) for path in inputs):
        if os.path.lexists(name) or name == STDIN or not glob.has_magic(name):
            paths.append(name)
            continue
        if is_remote(name):
            found = matching(name)
        else:
            found = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))
        if not found:
            raise UserError(f"{name}: found no file of such a name, expected files of sentences")
        paths += found
    if len(set(paths)) < len(paths):
        twice = next(path for i, path in enumerate(paths) if path in paths[:i])
        raise UserError(f"{twice}: found it twice, expected each file once")
    return paths


def cut(
    paths: Sequence[str],
    *,
    file_format: str | None = None,
    column: str | None = None,
    keep: Sequence[str] | None = None,
    shard_rows: int = PART,
) -> Input:
    """`Input` of files, each of which is read once for its digest; rows are not kept.

    Args:
      paths: the files, in their order.
      file_format, column: as of `files.sentence_files.read_sentences`.
      keep: names of the columns that go with the embeddings, in any of these formats; None for the sentences' own.
      shard_rows: how many rows a shard has; the last one of a file has what is left.

    Raises:
      UserError: an argument is invalid, a file does not exist, or none of the files can be cut.
    """
    if isinstance(shard_rows, bool) or not isinstance(shard_rows, int) or shard_rows < 1:
        raise ArgumentError(f"shard_rows: found {shard_rows!r}, expected a whole number of 1 or more")
    shards: list[Shard] = []
    refused: dict[str, UserError] = {}
    kinds: dict[str, str] = {}
    for number, path in enumerate(paths):
        if path == STDIN:
            raise ArgumentError("input: found standard input, expected files, which can be cut")
        if not is_remote(path) and not os.path.exists(path):
            raise UserError(f"{path}: no such file, expected {_EXPECTED}")
        kind = file_format or format_of_ending(path, FORMATS, "input_format")
        if kind == "text" and column is not None:
            raise ArgumentError(f"column: found {column} for text, which has no columns, expected none")
        kept = tuple(keep or [column or "sentence"])
        if EMBEDDING in kept:
            raise ArgumentError(f"keep: found {EMBEDDING}, expected other names than that of the embeddings' column")
        if kind == "text" and kept != ("sentence",):
            raise ArgumentError(f"keep: found {','.join(kept)} for text, which has no columns, expected none")
        try:
            stamp = _stamp(path)
            if not is_remote(path):
                # A pipe cannot be read a second time.
                open_file(path, _EXPECTED).close()
            columns = list(dict.fromkeys([column or "sentence", *kept]))
            if kind == "parquet":
                found = _cut_parquet(path, columns, kept, shard_rows, kinds)
            elif kind == "csv":
                found = _cut_csv(path, columns, shard_rows)
            else:
                found = _cut_lines(path, kind, columns, shard_rows)
            how = f"{kind} {columns} {kept}\n"
            made = [
                Shard(
                    name=f"part-{number:05d}-{i:05d}.parquet",
                    path=path,
                    file_format=kind,
                    column=column,
                    kept=kept,
                    span=span,
                    digest=hashlib.sha256(f"{how}{digest}".encode()).hexdigest(),
                    stamp=stamp,
                )
                for i, (span, digest) in enumerate(found)
            ]
        except UserError as error:
            refused[f"part-{number:05d}"] = error
            continue
        shards += made
        if len(shards) > _MOST_SHARDS:
            raise ArgumentError(
                f"shard_rows: found {shard_rows}, with which there are more than {_MOST_SHARDS:,} shards, expected a "
                "larger number"
            )
    if refused and not shards:
        raise next(iter(refused.values()))
    return Input(shards=shards, refused=refused)


def _cut_lines(path: str, kind: str, columns: Sequence[str], shard_rows: int) -> Iterator[tuple[Span, str]]:
    """Yields each span of a file of lines, and a digest of what is read there."""
    first, where = 1, "[]"
    if kind == "tsv" and has_names(columns):
        header = next(read_lines(path, file_format="text", column=None, kept=(), span=Span(1, 1)), [""])
        where, first = str(column_positions(columns[:1], path, header[0].split("\t"), columns[1:])), 2
    with open_sentences(path) as stream:
        try:
            for _ in range(1, first):
                stream.readline()
            while True:
                offset = stream.tell()
                if not (lines := list(itertools.islice(_readlines(stream), shard_rows))):
                    return
                yield Span(first, len(lines), offset), hashlib.sha256(b"".join([where.encode(), *lines])).hexdigest()
                first += len(lines)
        except OSError as error:
            raise cannot_be_read(path, error, _EXPECTED) from error


def _cut_csv(path: str, columns: Sequence[str], shard_rows: int) -> Iterator[tuple[Span, str]]:
    """As `_cut_lines`; no row is cut, whatever newlines its quotes hold."""
    rows = csv_rows(path, path)
    header = next(rows, Row([], 1, 0)).fields if has_names(columns) else []
    where = str(column_positions(columns[:1], path, header, columns[1:]))
    while part := list(itertools.islice(rows, shard_rows)):
        digest = hashlib.sha256(msgspec.json.encode([where, *(row.fields for row in part)]))
        yield Span(part[0].line, len(part), part[0].offset), digest.hexdigest()


def _readlines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of a file, whose `tell` stays right: iteration over the file reads ahead of it."""
    return iter(stream.readline, b"")


def _cut_parquet(
    path: str, columns: Sequence[str], kept: Sequence[str], shard_rows: int, kinds: dict[str, str]
) -> Iterator[tuple[Span, str]]:
    """As `_cut_lines`; `kinds` gets the types of kept columns from the first file, which those of others must have."""
    with open_parquet(path, path, columns[:1], columns[1:]) as file:
        # The sentences are written as strings, whatever kind of string they are.
        found = {name: str(file.schema_arrow.field(name).type) for name in kept if name != columns[0]}
        rows = file.metadata.num_rows
    for name, kind in found.items():
        if kinds.get(name, kind) != kind:
            raise UserError(f"{path}: {name}: found {kind}, expected {kinds[name]}, as in the first file")
    kinds.update(found)
    digest = hashlib.sha256()
    with open_sentences(path) as stream:
        try:
            while block := stream.read(1 << 20):
                digest.update(block)
        except OSError as error:
            raise cannot_be_read(path, error, _EXPECTED) from error
    for start in range(0, rows, shard_rows):
        span = Span(start + 1, min(shard_rows, rows - start))
        yield span, f"{digest.hexdigest()} {span.first} {span.rows}"


def _stamp(path: str) -> str:
    """What tells a file from one that replaces it: size and time, or what the file system of an address has."""
    if is_remote(path):
        return version_of(path)
    try:
        status = os.stat(path)
    except OSError as error:
        raise cannot_be_read(path, error, _EXPECTED) from error
    return f"{status.st_size} {status.st_mtime_ns}"


def read_shard(shard: Shard) -> tuple[list[str], Any]:
    """The sentences of a shard, and a `pyarrow.Table` of its kept columns: strings, but for those of Parquet.

    Raises:
      UserError: a row cannot be read, or the file was changed since it was cut.
    """
    if _stamp(shard.path) != shard.stamp:
        raise UserError(f"{shard.path}: found another file than when the command began, expected the same")
    import pyarrow

    text = pyarrow.string()
    column = shard.column or "sentence"
    if shard.file_format == "parquet":
        sentences, table = read_parquet_rows(shard.path, column=shard.column, kept=shard.kept, span=shard.span)
        columns = {name: table.column(name) for name in shard.kept}
    else:
        rows = read_lines(
            shard.path, file_format=shard.file_format, column=shard.column, kept=shard.kept, span=shard.span
        )
        sentences, *values = map(list, zip(*rows, strict=True))
        columns = {name: pyarrow.array(kept, text) for name, kept in zip(shard.kept, values, strict=True)}
    if column in columns:
        columns[column] = pyarrow.array(sentences, text)
    return sentences, pyarrow.table(columns)
