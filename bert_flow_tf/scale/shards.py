"""Embed files of sentences into a folder of Parquet files.

A shard is up to `shard_rows` rows of one input file; a part is the Parquet file of a shard's
embeddings. Its metadata has a digest of shard, model and settings, so that a resumed job keeps the
parts with the same digest.
"""

import glob
import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from absl import logging
from tqdm import tqdm

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import FolderKind, locked, new_file, output_folder
from bert_flow_tf.files.embedding_files import EMBEDDING, embedding_column
from bert_flow_tf.files.json_files import FORMAT_VERSION, Count, read_json, write_json
from bert_flow_tf.files.reading import AnyPath, check_local, is_remote, reading
from bert_flow_tf.files.sentence_files import has_known_ending, input_format, read_tables
from bert_flow_tf.scale.settings import ShardSettings

if TYPE_CHECKING:
    import pyarrow

    from bert_flow_tf.model.embedder import Embedder


# Readers of Parquet folders ignore names that begin with an underscore.
MANIFEST = "_manifest.json"
_PARTS = "part-*.parquet"
PARTS_FOLDER = FolderKind("a folder of embeddings", MANIFEST, (_PARTS, MANIFEST))
_DIGEST = b"bert_flow_tf"  # the digest's key in a part's metadata


class Manifest(msgspec.Struct, kw_only=True):
    """The `_manifest.json` of a folder of embeddings.

    Attributes:
      model: the `BertFlow.fingerprint`.
      parts: the rows of each part by file name, in the input's order; empty until the folder is
        complete.
    """

    format_version: int = FORMAT_VERSION
    model: str
    embedding_size: Count
    settings: ShardSettings
    is_complete: bool = False
    parts: dict[str, Count] = msgspec.field(default_factory=dict)


class Parts:
    """Read a complete folder of embeddings."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self._folder = pathlib.Path(folder)
        expected = "a folder of embeddings, as `encode-folder` writes it"
        self.manifest = read_json(self._folder / MANIFEST, Manifest, expected=expected)
        self.rows = sum(self.manifest.parts.values())
        if not self.manifest.is_complete:
            raise UserError(f"{folder}: parts are missing; run `encode-folder` again")
        if not self.rows:
            raise UserError(f"{folder}: found no embeddings, expected some")

    def blocks(
        self, generator: np.random.Generator, min_rows: int = 65_536
    ) -> Iterator[np.ndarray]:
        """Yield blocks, float32 [n, D], of whole parts in random order.

        A block has at least `min_rows` rows if possible.
        """
        names, block = list(self.manifest.parts), list[np.ndarray]()
        collected, left = 0, self.rows
        for i in generator.permutation(len(names)):
            block.append(self._read(names[i]))
            collected += len(block[-1])
            # The second condition keeps the last block from being small.
            if collected >= min_rows and left - collected >= min_rows:
                yield np.concatenate(block)
                left -= collected
                block, collected = [], 0
        if collected:
            yield np.concatenate(block)

    def settings_and_columns(self) -> tuple[ShardSettings, list[str]]:
        """Return the job's settings, and the columns beside the embeddings."""
        import pyarrow.parquet

        path = self._folder / next(iter(self.manifest.parts))
        with reading(path, "embeddings"):
            return self.manifest.settings, [
                one for one in pyarrow.parquet.read_schema(path).names if one != EMBEDDING
            ]

    def _read(self, name: str) -> np.ndarray:
        import pyarrow.parquet

        path, shape = self._folder / name, (self.manifest.parts[name], self.manifest.embedding_size)
        with (
            reading(path, "embeddings (remove it and run `encode-folder` again)"),
            pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file,
        ):
            values = file.read([EMBEDDING]).column(EMBEDDING).combine_chunks().flatten().to_numpy()
            return values.astype(np.float32, copy=False).reshape(shape)


class InputFile(NamedTuple):
    """A file of sentences; the fields are arguments of `read_tables`."""

    path: str
    file_format: str
    column: str | None
    kept: tuple[str, ...]
    no_header: bool = False


def input_files(
    inputs: AnyPath | Iterable[AnyPath],
    *,
    file_format: str | None = None,
    column: str | None = None,
    keep: Sequence[str] | None = None,
    no_header: bool = False,
) -> list[InputFile]:
    """Return the files of paths, folders, URLs or patterns, without duplicates.

    Args:
      file_format: None for the format of each file's ending.
      column: column of the sentences; None for `sentence`.
      keep: columns to write beside the embeddings; None for the sentences.
    """
    paths: list[str] = []
    for given in [inputs] if isinstance(inputs, str | os.PathLike) else inputs:
        name = os.fspath(given)
        if os.path.isdir(name):
            found = _data_files(os.path.join(name, one) for one in os.listdir(name))
            others = [] if file_format else [path for path in found if not has_known_ending(path)]
            if others and len(others) < len(found):
                logging.warning(
                    "%s: %s and other files without a known ending are no input", name, others[0]
                )
                found = [path for path in found if path not in others]
        elif os.path.lexists(name) or not glob.has_magic(name):
            found = [name] if is_remote(name) or os.path.exists(name) else []
        elif is_remote(name):
            import fsspec

            with reading(name, "addresses of files"):
                system, pattern = fsspec.url_to_fs(name)
                found = sorted(system.unstrip_protocol(path) for path in system.glob(pattern))
        else:
            found = _data_files(glob.glob(name, recursive=True))
        if not found:
            raise UserError(f"{name}: no such file, expected a file of sentences")
        paths += found
    kept = tuple(keep or [column or "sentence"])
    if EMBEDDING in kept:
        raise ArgumentError(
            f"keep: found {EMBEDDING}, the name of the embeddings' column, expected others"
        )
    formats = {path: file_format or input_format(path) for path in paths}
    files = [InputFile(path, one, column, kept, no_header) for path, one in formats.items()]
    for argument, value in (("column", column), ("keep", keep and ",".join(keep))):
        if value not in (None, "sentence") and any(file.file_format == "text" for file in files):
            raise ArgumentError(
                f"{argument}: found {value} for text, which has no columns, expected none"
            )
    return files


def _data_files(paths: Iterable[str]) -> list[str]:
    """Return the files, sorted, without empty ones and marks such as `_SUCCESS`."""
    found = sorted(path for path in paths if not os.path.basename(path).startswith(("_", ".")))
    return [path for path in found if os.path.isfile(path) and os.path.getsize(path)]


class Shard(NamedTuple):
    """Sentences and kept columns, with the name and digest of their part."""

    part: str
    sentences: list[str]
    kept: "pyarrow.Table"
    digest: str


class Engine:
    """Embed shards in this process."""

    def __init__(self, model: "Embedder", folder: AnyPath, settings: ShardSettings) -> None:
        self.fingerprint, self.embedding_size = model.fingerprint, model.embedding_size
        self._model, self._folder, self._settings = model, pathlib.Path(folder), settings

    def embed(self, shards: Iterable[Shard]) -> Iterator[tuple[str, int]]:
        """Write each shard's part; yield its name and rows, unordered."""
        return map(self._write, shards)

    def _write(self, shard: Shard) -> tuple[str, int]:
        import pyarrow.parquet

        path, settings = self._folder / shard.part, self._settings
        embedded = self._model.encode_blocks(
            shard.sentences, settings.batch_size, False, settings.normalize_embeddings
        )
        with np.errstate(over="ignore"):
            stored = np.concatenate([embeddings for _, embeddings in embedded]).astype(
                settings.precision
            )
        if not np.isfinite(stored).all():
            raise UserError(
                f"{path}: found an embedding that is not finite in {settings.precision}, expected "
                "numbers"
            )
        table = shard.kept.append_column(EMBEDDING, embedding_column(stored, settings.precision))
        table = table.replace_schema_metadata({_DIGEST: shard.digest})
        # Wait for the lock, because a worker that Ray has replaced may still be writing.
        with new_file(path, wait=True) as file:
            pyarrow.parquet.write_table(
                table, file, use_dictionary=shard.kept.column_names, write_page_checksum=True
            )
        return shard.part, len(stored)


class ShardsError(UserError):
    """An error for failed shards, raised after all others are done."""

    def __init__(self, problems: Sequence[UserError]) -> None:
        self.problems = problems
        first = (
            str(problems[0])
            if len(problems) == 1
            else f"{len(problems)} files or shards cannot be embedded"
        )
        super().__init__(f"{first}; all others are done; correct this and repeat the command")


class Job:
    """A job that embeds files; `new_parts` counts the parts that it wrote.

    Args:
      overwrite: True to replace parts of another model, input or settings.
    """

    def __init__(
        self, files: Sequence[InputFile], out: AnyPath, settings: ShardSettings, *, overwrite: bool
    ) -> None:
        check_local(out, str(out))
        self.files, self.out, self.settings, self.overwrite = (
            files,
            pathlib.Path(out),
            settings,
            overwrite,
        )
        self.new_parts = 0
        if any(self.out.resolve() in pathlib.Path(file.path).resolve().parents for file in files):
            raise ArgumentError(
                f"input: found files in {out}, the folder of the embeddings, expected them "
                "elsewhere"
            )
        output_folder(self.out, PARTS_FOLDER, overwrite=True)
        path = self.out / MANIFEST
        self._old = (
            read_json(path, Manifest, expected="the manifest of embeddings")
            if path.exists()
            else None
        )
        if self._old is not None:
            for name, value in vars(settings).items():
                self._check_same(name, value, getattr(self._old.settings, name))
        errors = []
        # One readable file is enough here; `run` reports the unreadable ones after the others are
        # done.
        for file in files:
            try:
                next(read_tables(**file._asdict(), rows=1), None)
                return
            except UserError as error:
                errors.append(error)
        raise errors[0]

    def _check_same(self, name: str, found: object, old: object) -> None:
        if found != old and not self.overwrite:
            raise UserError(
                f"{self.out}: {name}: found {found}, expected {old} as in its parts, or --overwrite"
            )

    def run(self, engine: Engine, *, show_progress_bar: bool | None = None) -> Manifest:
        """Write the missing parts; return the manifest.

        A `show_progress_bar` of None shows it on a terminal only.

        Raises:
          ShardsError: some files are unreadable; all others are done.
          UserError: the folder has parts of another model or input, or is not writable.
        """
        if self._old is not None:
            self._check_same("model", engine.fingerprint, self._old.model)
        manifest = Manifest(
            model=engine.fingerprint, embedding_size=engine.embedding_size, settings=self.settings
        )
        problems: list[UserError] = []
        hidden = None if show_progress_bar is None else not show_progress_bar
        total = _rows_if_known(self.files)
        with (
            locked(self.out),
            tqdm(total=total, desc="encode", unit=" sentences", disable=hidden) as progress,
        ):
            if progress.disable and hidden is None:
                logging.info(
                    "files to encode: %d%s",
                    len(self.files),
                    "" if total is None else f", {total:,} rows",
                )
            write_json(self.out / MANIFEST, manifest)
            for part, rows in engine.embed(self._missing(manifest, problems, progress)):
                manifest.parts[part] = rows
                self.new_parts += 1
                progress.update(rows)
            if problems:
                raise ShardsError(problems) if manifest.parts or len(problems) > 1 else problems[0]
            for path in self.out.glob(_PARTS):
                if path.name not in manifest.parts:
                    self._check_same("input", "other files", path.name)
                    path.unlink()
            manifest.parts, manifest.is_complete = dict(sorted(manifest.parts.items())), True
            write_json(self.out / MANIFEST, manifest)
        return manifest

    def _missing(
        self, manifest: Manifest, problems: list[UserError], progress: tqdm
    ) -> Iterator[Shard]:
        """Yield shards that need a part; append unreadable files to `problems`."""
        basis = msgspec.json.encode([manifest.model, self.settings])
        for number, file in enumerate(self.files):
            try:
                tables = read_tables(**file._asdict(), rows=self.settings.shard_rows)
                for i, (sentences, kept) in enumerate(tables):
                    name = f"part-{number:05d}-{i:05d}.parquet"
                    if (self.out / name).is_dir():
                        problems.append(
                            UserError(
                                f"{self.out / name}: found a folder, expected a file or nothing"
                            )
                        )
                        continue
                    with reading(file.path, "columns to keep"):
                        rows = repr([sentences, kept.to_pydict()])
                    digest = hashlib.sha256(basis + rows.encode()).hexdigest()
                    if (found := _digest_of(self.out / name)) == digest:
                        manifest.parts[name] = len(sentences)
                        progress.update(len(sentences))
                        continue
                    if found is not None:
                        self._check_same("input", "other rows or kept columns", name)
                    yield Shard(name, sentences, kept, digest)
            except UserError as error:
                problems.append(error)


def _rows_if_known(files: Sequence[InputFile]) -> int | None:
    """Return the rows of all files if they are Parquet; else None."""
    import pyarrow.parquet

    if any(file.file_format != "parquet" or not os.path.isfile(file.path) for file in files):
        return None
    try:
        return sum(pyarrow.parquet.read_metadata(file.path).num_rows for file in files)
    except (OSError, pyarrow.ArrowException):
        return None


def _digest_of(path: pathlib.Path) -> str | None:
    """Return the digest in a part; None if missing or damaged."""
    import pyarrow.parquet

    try:
        return (pyarrow.parquet.read_schema(path).metadata or {}).get(_DIGEST, b"").decode()
    except (OSError, pyarrow.ArrowException):
        return None
