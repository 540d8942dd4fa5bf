"""Embed files of sentences into a folder of Parquet files, and resume where that was interrupted.

Each part of the folder has the embeddings of a shard: up to `shard_rows` rows of one input file. Its metadata holds a
digest of the shard, the model and the settings, so that a resumed job keeps the parts whose digest is the same.
"""

import dataclasses
import glob
import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import numpy as np
from tqdm import tqdm

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import FolderKind, new_file, output_folder
from bert_flow_tf.files.embedding_files import EMBEDDING, embedding_column
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.reading import is_remote
from bert_flow_tf.files.sentence_files import STDIN, input_format, matching, read_tables
from bert_flow_tf.scale.parts import MANIFEST, PART_PRECISIONS, Manifest, PartSettings

if TYPE_CHECKING:
    import pyarrow

Path = str | os.PathLike[str]

_PARTS = "part-*.parquet"
PARTS_FOLDER = FolderKind("a folder of embeddings", MANIFEST, (_PARTS, MANIFEST))
# The key of the digest in a part's metadata.
_DIGEST = b"bert_flow_tf"


@dataclasses.dataclass(frozen=True)
class InputFile:
    """A file of sentences.

    Attributes:
      path: the file or address.
      file_format, column: see `files.sentence_files.read_sentences`.
      kept: names of the columns that are written beside the embeddings.
    """

    path: str
    file_format: str
    column: str | None
    kept: tuple[str, ...]

    def shards(self, rows: int) -> "Iterator[tuple[list[str], pyarrow.Table]]":
        """Yield the sentences and kept columns of each shard of so many rows.

        Raises:
          UserError: the file or a row cannot be read.
        """
        return read_tables(self.path, file_format=self.file_format, column=self.column, kept=self.kept, rows=rows)


def input_files(
    inputs: Path | Iterable[Path],
    *,
    file_format: str | None = None,
    column: str | None = None,
    keep: Sequence[str] | None = None,
) -> list[InputFile]:
    """Files that paths, addresses or patterns as of `glob` name; those of a pattern in the order of their names.

    Args:
      inputs: one or several.
      file_format: None for what each file's ending says.
      column: of the sentences; None for `sentence`.
      keep: names of the columns that are written beside the embeddings; None for the sentences' own.

    Raises:
      UserError: an argument is invalid, or a file does not exist or is named twice.
    """
    paths: list[str] = []
    for name in map(os.fspath, [inputs] if isinstance(inputs, str | os.PathLike) else inputs):
        if name == STDIN:
            raise ArgumentError("input: found standard input, expected files")
        if os.path.lexists(name) or not glob.has_magic(name):
            found = [name] if is_remote(name) or os.path.exists(name) else []
        elif is_remote(name):
            found = matching(name)
        else:
            found = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))
        if not found:
            raise UserError(f"{name}: no such file, expected a file of sentences")
        paths += found
    if len(set(paths)) < len(paths):
        twice = next(path for i, path in enumerate(paths) if path in paths[:i])
        raise UserError(f"{twice}: found twice, expected each file once")
    kept = tuple(keep or [column or "sentence"])
    if EMBEDDING in kept:
        raise ArgumentError(f"keep: found {EMBEDDING}, the name of the embeddings' column, expected others")
    files = []
    for path in paths:
        kind = file_format or input_format(path)
        for argument, value in (("column", column), ("keep", keep and ",".join(keep))):
            if kind == "text" and value not in (None, "sentence"):
                raise ArgumentError(f"{argument}: found {value} for text, which has no columns, expected none")
        files.append(InputFile(path, kind, column, kept))
    return files


class Shard(NamedTuple):
    """Rows of a file that are embedded together, with the name of their part and the digest for its metadata."""

    part: str
    sentences: list[str]
    kept: "pyarrow.Table"
    digest: str


class ShardError(UserError):
    """An unreadable file, or a shard whose workers died; the other shards are not affected."""


class Embedder(Protocol):
    """The part of `api.BertFlow` that shards need."""

    embedding_size: int

    @property
    def fingerprint(self) -> str:
        """Digest of everything that embeddings depend on."""
        ...

    def encode_parts(
        self,
        sentences: Iterable[str],
        batch_size: int | None,
        show_progress_bar: bool | None,
        normalize_embeddings: bool,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield sentences and their embeddings, float32 [k, embedding_size]."""
        ...


class Engine(Protocol):
    """A way to embed shards: here, or on Ray's workers."""

    fingerprint: str
    embedding_size: int

    def embed(self, shards: Iterable[Shard]) -> Iterator[tuple[str, int] | ShardError]:
        """Write the part of each shard; yield its name and rows, in any order, or why there is none."""
        ...


def write_part(model: Embedder, shard: Shard, folder: Path, settings: PartSettings) -> tuple[str, int]:
    """Write a shard's kept columns and its column `embedding`; return the part's name and rows.

    Raises:
      UserError: the file cannot be written, or an embedding is not finite.
    """
    import pyarrow.parquet

    path = pathlib.Path(folder) / shard.part
    embedded = model.encode_parts(shard.sentences, settings.batch_size, False, settings.normalize_embeddings)
    with np.errstate(over="ignore"):
        stored = np.concatenate([embeddings for _, embeddings in embedded]).astype(settings.precision)
    if not np.isfinite(stored).all():
        raise UserError(f"{path}: found an embedding that is not finite in {settings.precision}, expected numbers")
    table = shard.kept.append_column(EMBEDDING, embedding_column(stored, settings.precision))
    table = table.replace_schema_metadata({_DIGEST: shard.digest})
    # A worker that Ray has given up may still be writing.
    with new_file(path, wait=True) as temporary:
        pyarrow.parquet.write_table(table, temporary, use_dictionary=shard.kept.column_names, write_page_checksum=True)
    return shard.part, len(stored)


class ThisProcess:
    """The engine that embeds one shard after the other here."""

    def __init__(self, model: Embedder, folder: Path, settings: PartSettings) -> None:
        self._model, self._folder, self._settings = model, folder, settings
        self.fingerprint, self.embedding_size = model.fingerprint, model.embedding_size

    def embed(self, shards: Iterable[Shard]) -> Iterator[tuple[str, int] | ShardError]:
        """As `Engine.embed`, in the order of the shards."""
        return (write_part(self._model, shard, self._folder, self._settings) for shard in shards)


class ShardsError(UserError):
    """Shards that could not be embedded, after all others were.

    Attributes:
      problems: an error for each of them.
    """

    def __init__(self, problems: Sequence[UserError]) -> None:
        self.problems = problems
        first = str(problems[0]) if len(problems) == 1 else f"{len(problems)} files or shards cannot be embedded"
        super().__init__(f"{first}; all others are done, correct it and run the same command", problems[0].arguments)


class Job:
    """The embedding of files into a folder.

    Args:
      files: the input.
      out: the folder.
      settings: of all parts.
      overwrite: True to replace parts of another model, other input or other settings.

    Attributes:
      made: number of parts that `run` wrote.

    Raises:
      UserError: no file can be read; or the folder holds something else, or parts of other settings.
    """

    def __init__(self, files: Sequence[InputFile], out: Path, settings: PartSettings, *, overwrite: bool) -> None:
        if settings.precision not in PART_PRECISIONS:
            raise ArgumentError(f"precision: found {settings.precision!r}, expected {' or '.join(PART_PRECISIONS)}")
        if isinstance(settings.shard_rows, bool) or not isinstance(settings.shard_rows, int) or settings.shard_rows < 1:
            raise ArgumentError(f"shard_rows: found {settings.shard_rows!r}, expected a whole number of 1 or more")
        self.files, self.out, self.settings, self.overwrite = files, pathlib.Path(out), settings, overwrite
        self.made = 0
        if any(self.out.resolve() in pathlib.Path(file.path).resolve().parents for file in files):
            raise ArgumentError(f"input: found files in {out}, which gets the embeddings, expected them elsewhere")
        with locked(self.out):
            if self.out.exists():
                output_folder(self.out, PARTS_FOLDER, overwrite=True)
            path = self.out / MANIFEST
            self._known = read_json(path, Manifest, expected="the manifest of embeddings") if path.exists() else None
        if self._known is not None:
            self._check_same(self._known.settings, self.settings)
        errors = []
        for file in files:
            try:
                next(file.shards(1), None)
                return
            except UserError as error:
                errors.append(error)
        raise errors[0]

    def _check_same(self, found: PartSettings, expected: PartSettings) -> None:
        for name in () if self.overwrite else PartSettings.__struct_fields__:
            if getattr(found, name) != getattr(expected, name):
                raise self._exists(f"{name}: found {getattr(expected, name)}, its parts have {getattr(found, name)}")

    def _exists(self, reason: str) -> UserError:
        return UserError(f"{self.out}: exists, {reason} (or `overwrite`)", ["overwrite"])

    def run(self, engine: Engine, *, show_progress_bar: bool | None = None) -> Manifest:
        """Return the folder's manifest after the engine has made the missing parts.

        Args:
          engine: makes the parts; whatever it raises ends the job, and the parts that are done stay.
          show_progress_bar: None shows it on a terminal only.

        Raises:
          ShardsError: files cannot be read, and all others are done.
          UserError: the folder's parts are of another model or input, or parts cannot be written.
        """
        if self._known is not None and not self.overwrite and self._known.model != engine.fingerprint:
            raise self._exists(f"model: found {engine.fingerprint[:12]}…, its parts have {self._known.model[:12]}…")
        manifest = Manifest(
            model=engine.fingerprint, embedding_size=engine.embedding_size, settings=self.settings, parts={}
        )
        problems: list[UserError] = []
        hidden = None if show_progress_bar is None else not show_progress_bar
        with locked(self.out), tqdm(desc="encode", unit=" sentences", disable=hidden) as progress:
            write_json(self.out / MANIFEST, manifest)
            for outcome in engine.embed(self._missing(manifest, problems)):
                if isinstance(outcome, ShardError):
                    problems.append(outcome)
                else:
                    name, rows = outcome
                    manifest.parts[name] = rows
                    self.made += 1
                    progress.update(rows)
            if problems:
                raise ShardsError(problems)
            for path in self.out.glob(_PARTS):
                if path.name not in manifest.parts:
                    if not self.overwrite:
                        raise self._exists(f"holds {path.name}, which is not from this input")
                    path.unlink()
            manifest = msgspec.structs.replace(manifest, parts=dict(sorted(manifest.parts.items())), is_complete=True)
            write_json(self.out / MANIFEST, manifest)
        return manifest

    def _missing(self, manifest: Manifest, problems: list[UserError]) -> Iterator[Shard]:
        """Yield the shards without a part; the others go into the manifest, and unreadable files into `problems`."""
        basis = msgspec.json.encode([manifest.model, self.settings])
        for number, file in enumerate(self.files):
            try:
                for i, (sentences, kept) in enumerate(file.shards(self.settings.shard_rows)):
                    name = f"part-{number:05d}-{i:05d}.parquet"
                    rows = repr([sentences, kept.to_pydict()]).encode()
                    digest = hashlib.sha256(basis + rows).hexdigest()
                    found = _digest_of(self.out / name)
                    if found == digest:
                        manifest.parts[name] = len(sentences)
                    elif found is None or self.overwrite:
                        yield Shard(name, sentences, kept, digest)
                    else:
                        raise self._exists(f"{name}: found it made from other input")
            except UserError as error:
                problems.append(error)


def _digest_of(path: pathlib.Path) -> str | None:
    """The digest in a part's metadata; None if the part is missing or damaged."""
    import pyarrow.parquet

    try:
        return (pyarrow.parquet.read_schema(path).metadata or {}).get(_DIGEST, b"").decode()
    except (OSError, pyarrow.ArrowException):
        return None
