"""Embeds files of sentences shard by shard into a folder of Parquet files, and goes on where that was interrupted.

`embed_shard` is the whole work on one shard. It may be called twice, on any machine that has the files, and by any
engine: it needs no other shard, and gives the same bytes again. `Job` decides which shards it is to be called for, and
keeps the folder's `_manifest.json`.
"""

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
import numpy as np
from tqdm import tqdm

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import FolderKind, new_file, output_folder
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.embedding_files import EMBEDDING, embedding_column
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.scale.shards import Input, Shard, read_shard

# Readers of Parquet folders pass over names that begin so.
MANIFEST = "_manifest.json"
PRECISIONS = ("float32", "float16")
_PARTS = "part-*.parquet"
# A folder of parts; the names with a dot are of locks and of what is being written.
PARTS_FOLDER = FolderKind("a folder of embeddings", MANIFEST, (_PARTS, MANIFEST, ".*"))


class Embedder(Protocol):
    """What embeds: an `api.BertFlow`."""

    @property
    def fingerprint(self) -> str: ...

    embedding_size: int

    def encode_parts(
        self,
        sentences: Iterable[str],
        batch_size: int | None,
        show_progress_bar: bool | None,
        normalize_embeddings: bool,
    ) -> Iterator[tuple[list[str], np.ndarray]]: ...


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the bytes of a part depend on beside its rows and the model; arguments of `BertFlow.encode_dataset`."""

    shard_rows: int
    precision: str = PRECISIONS[0]
    normalize_embeddings: bool = False
    batch_size: int | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file of embeddings: its rows, the `Shard.digest` that it is of, and its own SHA-256."""

    rows: int
    input: str
    output: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The `_manifest.json` of a folder of embeddings.

    `model` is a `BertFlow.fingerprint`; `shards` is the number of parts when none is missing; `parts` are by their
    files' names, and in the input's order.
    """

    format_version: int = FORMAT_VERSION
    model: str
    embedding_size: int
    settings: Settings
    shards: int
    parts: dict[str, Part]


class ShardError(UserError):
    """A shard that cannot be read, of which the others do not depend."""


def embed_shard(model: Embedder, shard: Shard, folder: str | os.PathLike, settings: Settings) -> Part:
    """`Part` of the Parquet file that it writes into the folder, whole or not at all: kept columns and `embedding`.

    Raises:
      ShardError: the shard cannot be read.
      UserError: the file cannot be written, or an embedding is not finite.
    """
    try:
        sentences, kept = read_shard(shard)
    except UserError as error:
        raise ShardError(f"{shard.name}: {error}", error.arguments) from error
    import pyarrow.parquet

    kind = pyarrow.list_(pyarrow.type_for_alias(settings.precision), model.embedding_size)
    schema = kept.schema.remove_metadata().append(pyarrow.field(EMBEDDING, kind))
    path = pathlib.Path(folder) / shard.name
    # Another process that has it is a worker that was given up, and about to end.
    with new_file(path, wait=True) as temporary:
        with pyarrow.parquet.ParquetWriter(str(temporary), schema, use_dictionary=list(shard.kept)) as writer:
            done = 0
            for part, embeddings in model.encode_parts(
                sentences, settings.batch_size, False, settings.normalize_embeddings
            ):
                rows = kept.slice(done, len(part)).columns
                with np.errstate(over="ignore"):
                    stored = embeddings.astype(settings.precision)
                if not np.isfinite(stored).all():
                    raise UserError(
                        f"{path}: found an embedding that is not finite in {settings.precision}, expected numbers"
                    )
                column = embedding_column(stored, settings.precision)
                writer.write_table(pyarrow.Table.from_arrays([*rows, column], schema=schema))
                done += len(part)
        output = file_digest(temporary)
    return Part(rows=len(sentences), input=shard.digest, output=output)


def embed_if_missing(
    model: Embedder, shard: Shard, folder: str | os.PathLike, settings: Settings, known: Part | None
) -> Part | None:
    """None if the shard's file is the one of which `known` is known; else as `embed_shard`, which writes it."""
    path = pathlib.Path(folder) / shard.name
    if known is not None and known.input == shard.digest and path.is_file() and file_digest(path) == known.output:
        return None
    return embed_shard(model, shard, folder, settings)


# A shard and what is known of its file.
Task = tuple[Shard, Part | None]
# A shard and the part that was made of it, or why there is none; None where the known one is there.
Outcome = tuple[Shard, Part | ShardError | None]
# Outcomes come in any order.
Engine = Callable[[Iterable[Task]], Iterator[Outcome]]


def in_this_process(model: Embedder, folder: str | os.PathLike, settings: Settings) -> Engine:
    """The engine that embeds one shard after the other here."""

    def embed(tasks: Iterable[Task]) -> Iterator[Outcome]:
        for shard, known in tasks:
            try:
                yield shard, embed_if_missing(model, shard, folder, settings, known)
            except ShardError as error:
                yield shard, error

    return embed


class ShardsError(UserError):
    """Shards that cannot be read, after all others were embedded.

    Attributes:
      problems: an error for each of them.
    """

    def __init__(self, problems: Sequence[UserError], shards: int) -> None:
        self.problems = problems
        others = "all others are done, run the same command again when it is mended"
        if len(problems) == 1:
            super().__init__(f"{problems[0]}; {others}", problems[0].arguments)
        else:
            super().__init__(f"{len(problems)} of {shards} shards cannot be read; {others}")


class Job:
    """The parts of an input in a folder: which there are, and which are still to be made.

    Args:
      given: what the files were cut into.
      out: the folder.
      settings: of all parts.
      overwrite: whether parts that another model, other input or other settings gave may be replaced; the rest is kept.

    Attributes:
      made: number of parts that `run` wrote.

    Raises:
      UserError: the folder holds something else, or parts that may not be replaced; the line says which.
    """

    def __init__(self, given: Input, out: str | os.PathLike, settings: Settings, *, overwrite: bool = False) -> None:
        if settings.precision not in PRECISIONS:
            raise ArgumentError(f"precision: found {settings.precision!r}, expected {' or '.join(PRECISIONS)}")
        self.given, self.out, self.settings, self.overwrite = given, pathlib.Path(out), settings, overwrite
        self.made = 0
        self._digests = {shard.name: shard.digest for shard in given.shards}
        # A second call would take its own parts for input.
        above = self.out.resolve()
        for folder in {os.path.dirname(shard.path) for shard in given.shards}:
            if (found := pathlib.Path(folder).resolve()) == above or above in found.parents:
                raise ArgumentError(f"input: found files in {out}, which gets the embeddings, expected them elsewhere")
        # Owned, so that what a killed job left is no longer there.
        with locked(self.out):
            if self.out.exists():
                output_folder(self.out, PARTS_FOLDER, overwrite=True)
            path = self.out / MANIFEST
            self._known = read_json(path, Manifest, expected="the manifest of embeddings") if path.exists() else None
        if self._known is not None and not overwrite:
            self._refuse_others(self._known)

    def _refuse_others(self, known: Manifest) -> None:
        for name in Settings.__struct_fields__:
            found, expected = getattr(self.settings, name), getattr(known.settings, name)
            if found != expected:
                raise self._refusal(f"{name}: found {found}, expected {expected}, which its parts were made with")
        for name, part in known.parts.items():
            if not self._is_of_input(name, part):
                raise self._refusal(f"{name}: found it made of other input, expected this input's")

    def _refusal(self, reason: str) -> UserError:
        return UserError(f"{self.out}: exists, {reason} (or `overwrite`)", ["overwrite"])

    def _is_of_input(self, name: str, part: Part) -> bool:
        # What a file that cannot be cut now gave earlier stays.
        return self._digests.get(name) == part.input or name.rpartition("-")[0] in self.given.refused

    def run(
        self, engine: Engine, model: str, embedding_size: int, *, show_progress_bar: bool | None = None
    ) -> Manifest:
        """The folder's manifest after the engine has made what was missing.

        Args:
          engine: makes the parts; whatever it raises ends the job, with what is done recorded.
          model: the `fingerprint` of the model that the engine embeds with, and its width.
          show_progress_bar: None shows it on a terminal only.

        Raises:
          ShardsError: shards cannot be read, and all others are done.
          UserError: the folder's parts are of another model, or parts cannot be written.
        """
        known, trusted = self._known, {}
        if known is not None and not self.overwrite and known.model != model:
            raise self._refusal(f"model: found {model[:12]}…, expected {known.model[:12]}…, which made its parts")
        if known is not None and (known.model, known.settings) == (model, self.settings):
            trusted = {name: part for name, part in known.parts.items() if self._is_of_input(name, part)}
        problems = [UserError(f"{name}: {error}", error.arguments) for name, error in self.given.refused.items()]
        rows = sum(shard.span.rows for shard in self.given.shards)
        hidden = None if show_progress_bar is None else not show_progress_bar
        manifest = Manifest(
            model=model,
            embedding_size=embedding_size,
            settings=self.settings,
            shards=len(self.given.shards) + len(self.given.refused),
            parts=trusted,
        )
        with (
            locked(self.out),
            _Record(self.out / MANIFEST, manifest) as record,
            tqdm(total=rows, desc="encode", unit="sentence", disable=hidden) as progress,
        ):
            for path in self.out.glob(_PARTS):
                # Of another job, or of this one when it was killed before it recorded it.
                if path.name not in trusted:
                    path.unlink()
            # The workers compare digests with files.
            for shard, outcome in engine((shard, trusted.get(shard.name)) for shard in self.given.shards):
                if isinstance(outcome, ShardError):
                    problems.append(outcome)
                elif outcome is not None:
                    self.made += 1
                    record.add(shard.name, outcome)
                progress.update(shard.span.rows)
        if problems:
            raise ShardsError(problems, manifest.shards)
        return manifest


class _Record:
    """A manifest and its file, which is written at the start, at the end and now and then in between."""

    def __init__(self, path: pathlib.Path, manifest: Manifest) -> None:
        self._path, self._manifest = path, manifest
        self._written_at = self._cost = 0.0
        self._is_written = False

    def __enter__(self) -> "_Record":
        self._write()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if not self._is_written:
            # What ended the job is what its error names.
            with contextlib.suppress(*(() if kind is None else (UserError,))):
                self._write()

    def add(self, name: str, part: Part) -> None:
        self._manifest.parts[name] = part
        self._is_written = False
        # Of 50,000 parts it is 15 MB, which is not to be written for each of them.
        if time.monotonic() - self._written_at >= 20 * self._cost:
            # On a full disk the next part finds no room either, and the error names that; at the end it is tried again.
            with contextlib.suppress(UserError):
                self._write()

    def _write(self) -> None:
        begun = time.monotonic()
        ordered = dict(sorted(self._manifest.parts.items()))
        write_json(self._path, msgspec.structs.replace(self._manifest, parts=ordered))
        self._written_at, self._is_written = time.monotonic(), True
        self._cost = self._written_at - begun
