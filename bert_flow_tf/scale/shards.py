"""Embed files of sentences into a folder of Parquet files.

A shard is up to `shard_rows` rows of one input file; a part is the Parquet file of a shard's
embeddings. Its metadata has a digest of shard, model and settings. A job keeps every part whose
digest a shard of its input has, wherever that shard stood before: only new and changed rows are
embedded. While a job embeds, a complete folder stays complete; at the end the parts get the names
of their places, so that names and manifest have the input's order.
"""

import glob
import hashlib
import logging
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
from tqdm import tqdm

from bert_flow_tf.common.atomic import FolderKind, locked, new_file, output_folder
from bert_flow_tf.common.embedding_files import EMBEDDING, embedding_column
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.json_files import Count, read_json, write_json
from bert_flow_tf.common.reading import AnyPath, check_local, is_remote, reading
from bert_flow_tf.common.version import FORMAT_VERSION
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.tasks.sentence_files import (
    SENTENCE,
    FormNames,
    TextFile,
    joined,
    known_format,
    read_tables,
)

if TYPE_CHECKING:
    import pyarrow

    from bert_flow_tf.vectors.sentence_model import SentenceModel

logger = logging.getLogger(__name__)


# Readers of Parquet folders ignore names that begin with an underscore.
MANIFEST = "_manifest.json"
_PARTS = "part-*.parquet"
PARTS_FOLDER = FolderKind("a folder of embeddings", MANIFEST, (_PARTS, MANIFEST))
_DIGEST = b"bert_flow_tf"  # the digest's key in a part's metadata
_IN_PYTHON = FormNames("input_format", "column", "no_header")


class Manifest(msgspec.Struct, kw_only=True):
    """The `_manifest.json` of a folder of embeddings.

    Attributes:
      model: the `BertFlow.fingerprint`.
      inputs: the input files in their order, whose numbers are in the parts' names.
      columns: the columns beside the embeddings.
      parts: the rows of each part by file name, in the input's order; empty until the folder is
        complete.
    """

    format_version: int = FORMAT_VERSION
    model: str
    embedding_size: Count
    settings: ShardSettings
    inputs: list[str]
    columns: list[str]
    is_complete: bool = False
    parts: dict[str, Count] = msgspec.field(default_factory=dict)


class Parts:
    """Read a complete folder of embeddings."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self._folder = pathlib.Path(folder)
        expected = "a folder of embeddings, as `encode-folder` writes it"
        self.manifest = read_json(self._folder / MANIFEST, Manifest, expected=expected)
        if not self.manifest.is_complete:
            raise UserError(f"{folder}: parts are missing; run `encode-folder` again")
        if not len(self):
            raise UserError(f"{folder}: found no embeddings, expected some")

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(self.manifest.parts.values())

    def blocks(
        self, generator: np.random.Generator, min_rows: int = 65_536
    ) -> Iterator[np.ndarray]:
        """Yield blocks, float32 [n, D], of whole parts in random order.

        A block has at least `min_rows` rows if possible.
        """
        names = list(self.manifest.parts)
        block = list[np.ndarray]()
        collected = 0
        left = len(self)
        for i in generator.permutation(len(names)):
            block.append(self._read(names[i]))
            collected += len(block[-1])
            # The second condition keeps the last block from being small.
            if collected >= min_rows and left - collected >= min_rows:
                yield np.concatenate(block)
                left -= collected
                block = []
                collected = 0
        if collected:
            yield np.concatenate(block)

    def _read(self, name: str) -> np.ndarray:
        import pyarrow.parquet

        path = self._folder / name
        shape = (self.manifest.parts[name], self.manifest.embedding_size)
        with (
            reading(path, "embeddings (remove it and run `encode-folder` again)"),
            pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file,
        ):
            values = file.read([EMBEDDING]).column(EMBEDDING).combine_chunks().flatten().to_numpy()
            return values.astype(np.float32, copy=False).reshape(shape)


def read_manifest(folder: pathlib.Path) -> Manifest | None:
    """Return a folder's manifest, or None if it has none."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    return read_json(path, Manifest, expected="the manifest of embeddings")


class FoundPart(NamedTuple):
    """A readable part of a folder."""

    name: str
    digest: str


def _found_parts(folder: pathlib.Path) -> Iterator[FoundPart]:
    """Yield the readable parts, sorted by name."""
    import pyarrow.parquet

    for path in sorted(folder.glob(_PARTS)):
        try:
            schema = pyarrow.parquet.read_schema(path)
        except (OSError, pyarrow.ArrowException):
            continue
        if digest := (schema.metadata or {}).get(_DIGEST):
            yield FoundPart(path.name, digest.decode())


def input_files(
    inputs: AnyPath | Iterable[AnyPath],
    *,
    file_format: str | None = None,
    column: str | None = None,
    keep: Sequence[str] | None = None,
    no_header: bool = False,
    names: FormNames = _IN_PYTHON,
) -> list[TextFile]:
    """Return the files of paths, folders, URLs or patterns, without duplicates.

    Args:
      file_format: None for the format of each file's ending.
      column: column of the sentences; None for `sentence`.
      keep: columns to write beside the embeddings; None for the sentences.
      no_header: True if the first row of TSV or CSV is data; then `column` is a number.
      names: the caller's names of these arguments, for messages.
    """
    paths: list[str] = []
    for given in [inputs] if isinstance(inputs, str | os.PathLike) else inputs:
        name = os.fspath(given)
        if os.path.isdir(name):
            found = _data_files(os.path.join(name, one) for one in os.listdir(name))
            others = [] if file_format else [path for path in found if known_format(path) is None]
            if others and len(others) < len(found):
                logger.warning(
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
    sentences = column or SENTENCE
    kept = tuple(keep or [sentences])
    if EMBEDDING in kept:
        raise ArgumentError(
            f"keep: found {EMBEDDING}, the name of the embeddings' column, expected others"
        )
    return [
        TextFile(
            path=path,
            file_format=file_format or "",
            columns=(sentences,),
            kept=kept,
            no_header=no_header,
            names=names,
        )
        for path in dict.fromkeys(paths)
    ]


def _cut(file: TextFile, rows: int) -> "Iterator[pyarrow.Table]":
    """Yield a file's tables of `rows` rows; the last may have fewer."""
    pending = None
    for table in read_tables(file):
        pending = table if pending is None else joined([pending, table])
        while len(pending) >= rows:
            yield pending[:rows]
            pending = pending[rows:]
    if pending is not None and len(pending):
        yield pending


def _data_files(paths: Iterable[str]) -> list[str]:
    """Return the files, sorted, without empty ones and marks such as `_SUCCESS`."""
    found = sorted(path for path in paths if not os.path.basename(path).startswith(("_", ".")))
    return [path for path in found if os.path.isfile(path) and os.path.getsize(path)]


class Shard(NamedTuple):
    """Sentences and kept columns, with the name and digest of their part.

    Attributes:
      place: the name of the part in a complete folder.
      part: the name that is written; another one if a part of other rows has the place.
    """

    place: str
    part: str
    sentences: list[str]
    kept: "pyarrow.Table"
    digest: str


class WrittenPart(NamedTuple):
    """The place, name and rows of a part that an engine wrote."""

    place: str
    name: str
    rows: int


class Identity(NamedTuple):
    """The fingerprint of a folder's embeddings, and their width."""

    fingerprint: str
    embedding_size: int

    @classmethod
    def of(cls, model: "SentenceModel", settings: ShardSettings) -> "Identity":
        fingerprint = model.fingerprint_of(
            prompt=settings.prompt, normalize=settings.normalize_embeddings
        )
        return cls(fingerprint, model.embedding_size)


class Engine(Protocol):
    """A way to embed shards: in this process, or by Ray's workers."""

    def identity(self) -> Identity: ...

    def embed(self, shards: Iterable[Shard]) -> Iterator[WrittenPart]:
        """Write each shard's part; yield the written parts, unordered."""


class LocalEngine:
    """Embed shards in this process."""

    def __init__(self, model: "SentenceModel", folder: AnyPath, settings: ShardSettings) -> None:
        self._model = model
        self._folder = pathlib.Path(folder)
        self._settings = settings
        self._identity = Identity.of(model, settings)

    def identity(self) -> Identity:
        return self._identity

    def embed(self, shards: Iterable[Shard]) -> Iterator[WrittenPart]:
        return map(self._write, shards)

    def _write(self, shard: Shard) -> WrittenPart:
        import pyarrow.parquet

        path = self._folder / shard.part
        settings = self._settings
        embedded = self._model.encode_blocks(
            shard.sentences,
            batch_size=settings.batch_size,
            show_progress_bar=False,
            normalize_embeddings=settings.normalize_embeddings,
            prompt=settings.prompt,
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
        return WrittenPart(shard.place, shard.part, len(stored))


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
      overwrite: True to replace parts of another model or other settings, and to remove parts of
        files that are no longer given.
    """

    def __init__(
        self, files: Sequence[TextFile], out: AnyPath, settings: ShardSettings, *, overwrite: bool
    ) -> None:
        check_local(out, str(out))
        self.files = files
        self.out = pathlib.Path(out)
        self.settings = settings
        self.overwrite = overwrite
        self.new_parts = 0
        if any(self.out.resolve() in pathlib.Path(file.path).resolve().parents for file in files):
            raise ArgumentError(
                f"input: found files in {out}, the folder of the embeddings, expected them "
                "elsewhere"
            )
        output_folder(self.out, PARTS_FOLDER, overwrite=True)
        old = read_manifest(self.out)
        if old is not None:
            self._is_same_kind(old, None)
        self._check_readable()

    def run(self, engine: Engine, *, show_progress_bar: bool | None = None) -> Manifest:
        """Write the missing parts; return the manifest.

        A `show_progress_bar` of None shows it on a terminal only.

        Raises:
          ShardsError: some files are unreadable; all others are done.
          UserError: the folder has parts of another model, other settings or files that are not
            given, or is not writable.
        """
        manifest = self._new_manifest(engine.identity())
        problems: list[UserError] = []
        hidden = None if show_progress_bar is None else not show_progress_bar
        total = _rows_if_known(self.files)
        with (
            locked(self.out),
            tqdm(total=total, desc="encode", unit=" sentences", disable=hidden) as progress,
        ):
            # All checks come first: a folder that is refused stays as it is.
            places = Places(self.out, self._reusable_parts(manifest))
            if progress.disable and hidden is None:
                logger.info(
                    "files to encode: %d%s",
                    len(self.files),
                    "" if total is None else f", {total:,} rows",
                )
            for part in engine.embed(self._missing(manifest, places, problems, progress)):
                places.add(part)
                self.new_parts += 1
                progress.update(part.rows)
            if problems:
                raise ShardsError(problems) if places.rows or len(problems) > 1 else problems[0]
            places.arrange(manifest)
        return manifest

    def _check_readable(self) -> None:
        """Raise the first error if no file is readable.

        `run` reports unreadable files after the others are done.
        """
        errors = []
        for file in self.files:
            try:
                next(read_tables(file), None)
                return
            except UserError as error:
                errors.append(error)
        raise errors[0]

    def _new_manifest(self, model: Identity) -> Manifest:
        return Manifest(
            model=model.fingerprint,
            embedding_size=model.embedding_size,
            settings=self.settings,
            inputs=[_absolute(file.name) for file in self.files],
            columns=list(self.files[0].kept),
        )

    def _is_same_kind(self, old: Manifest, new: Manifest | None) -> bool:
        """True if new parts can stand beside the old ones.

        Raises `UserError` if not, unless `overwrite`. `new` is None before the model is known.
        """
        # The fingerprint says whether these two make a difference.
        of_model = ("normalize_embeddings", "prompt")
        settings = vars(self.settings)
        pairs: list[tuple[str, Any, Any]] = [
            (name, value, getattr(old.settings, name))
            for name, value in settings.items()
            if name not in of_model
        ]
        if new is not None and new.model != old.model:
            pairs += [(name, settings[name], getattr(old.settings, name)) for name in of_model]
            pairs.append(("model", new.model, old.model))
        pairs.append(("keep", list(self.files[0].kept), old.columns))
        for name, found, expected in pairs:
            if found != expected:
                if not self.overwrite:
                    raise UserError(
                        f"{self.out}: {name}: found {_in_words(found)}, expected "
                        f"{_in_words(expected)} as in its parts, or --overwrite"
                    )
                return False
        return True

    def _reusable_parts(self, manifest: Manifest) -> list[FoundPart]:
        """Return the old parts; if they are of another kind, remove them."""
        old = read_manifest(self.out)
        if old is not None and self._is_same_kind(old, manifest):
            found = list(_found_parts(self.out))
            if not self.overwrite:
                self._check_removed(old, manifest, found)
            return found
        write_json(self.out / MANIFEST, manifest)
        for path in _part_files(self.out):
            path.unlink()
        return []

    def _check_removed(self, old: Manifest, manifest: Manifest, found: Sequence[FoundPart]) -> None:
        """Raise `UserError` before parts of a missing file are removed."""
        given = set(manifest.inputs)
        suspects = {
            part.digest: path
            for part in found
            if (path := _input_of(part.name, old)) is not None and path not in given
        }
        if not suspects:
            return
        # The file may have moved, so the content decides.
        for shard in self._shards(manifest, []):
            suspects.pop(shard.digest, None)
        if lost := sorted(set(suspects.values())):
            others = f" and {len(lost) - 1} others" if len(lost) > 1 else ""
            raise UserError(
                f"{self.out}: input: found parts of {lost[0]}{others}, expected it among the "
                "files, or --overwrite"
            )

    def _shards(self, manifest: Manifest, problems: list[UserError]) -> Iterator[Shard]:
        """Yield all shards; append unreadable files to `problems`."""
        basis = msgspec.json.encode([manifest.model, manifest.settings.precision])
        for number, file in enumerate(self.files):
            try:
                for i, table in enumerate(_cut(file, self.settings.shard_rows)):
                    sentences = table.column(0).to_pylist()
                    kept = table.select(list(file.kept))
                    name = f"part-{number:05d}-{i:05d}.parquet"
                    with reading(file.name, "columns to keep"):
                        rows = repr([sentences, kept.to_pydict()])
                    digest = hashlib.sha256(basis + rows.encode()).hexdigest()
                    yield Shard(name, name, sentences, kept, digest)
            except UserError as error:
                problems.append(error)

    def _missing(
        self,
        manifest: Manifest,
        places: "Places",
        problems: list[UserError],
        progress: tqdm,
    ) -> Iterator[Shard]:
        """Yield shards that need a part; append unreadable files to `problems`."""
        for shard in self._shards(manifest, problems):
            if (self.out / shard.place).is_dir():
                problems.append(
                    UserError(
                        f"{self.out / shard.place}: found a folder, expected a file or nothing"
                    )
                )
            elif places.take(shard):
                progress.update(len(shard.sentences))
            else:
                yield shard._replace(part=places.free_name(shard))


class Places:
    """The names and rows of the parts by their places.

    Attributes:
      rows: the rows of each place that has its part.
    """

    def __init__(self, folder: pathlib.Path, found: Sequence[FoundPart]) -> None:
        self._folder = folder
        self._occupied = {part.name for part in found}
        self._unused: dict[str, list[str]] = {}
        for part in found:
            self._unused.setdefault(part.digest, []).append(part.name)
        self._names: dict[str, str] = {}
        self._unplaced: dict[str, str] = {}
        self.rows: dict[str, int] = {}

    def take(self, shard: Shard) -> bool:
        """Place an old part of these rows; True if there is one."""
        names = self._unused.get(shard.digest)
        self._unplaced[shard.place] = _unplaced(shard)
        if not names:
            return False
        own = (name for name in (shard.place, _unplaced(shard)) if name in names)
        name = next(own, names[0])
        names.remove(name)
        self.add(WrittenPart(shard.place, name, len(shard.sentences)))
        return True

    def free_name(self, shard: Shard) -> str:
        """Return the name of a new part."""
        return _unplaced(shard) if shard.place in self._occupied else shard.place

    def add(self, part: WrittenPart) -> None:
        self._names[part.place] = part.name
        self.rows[part.place] = part.rows

    def arrange(self, manifest: Manifest) -> None:
        """Remove unused parts, rename the others to their places, complete the manifest.

        A process that is killed here leaves an incomplete manifest, and the next one finds all
        parts by their digests.
        """
        used = set(self._names.values())
        unused = [path for path in _part_files(self._folder) if path.name not in used]
        moved = {place: name for place, name in self._names.items() if name != place}
        if unused or moved:
            write_json(self._folder / MANIFEST, manifest)
        for path in unused:
            path.unlink()
        # First to names that no place has, because a part may stand in another's place.
        for place, name in moved.items():
            (self._folder / name).rename(self._folder / self._unplaced[place])
        for place in moved:
            (self._folder / self._unplaced[place]).rename(self._folder / place)
        manifest.parts = dict(sorted(self.rows.items()))
        manifest.is_complete = True
        write_json(self._folder / MANIFEST, manifest)


def _unplaced(shard: Shard) -> str:
    """Return a name that only these rows at this place can have."""
    return shard.place.replace(".parquet", f"-{shard.digest[:16]}.parquet")


def _part_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.glob(_PARTS) if path.is_file()]


def _absolute(path: str) -> str:
    return path if is_remote(path) else os.path.abspath(path)


def _input_of(part: str, manifest: Manifest) -> str | None:
    """Return the input file of a part, or None if unknown."""
    if manifest.is_complete and part not in manifest.parts:
        return None  # A later job wrote it and did not end.
    number = re.fullmatch(r"part-(\d+)-\d+\.parquet", part)
    if number is None or int(number[1]) >= len(manifest.inputs):
        return None
    return manifest.inputs[int(number[1])]


def _in_words(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _rows_if_known(files: Sequence[TextFile]) -> int | None:
    """Return the rows of all files if they are Parquet; else None."""
    import pyarrow.parquet

    if any(file.file_format != "parquet" or not os.path.isfile(file.path) for file in files):
        return None
    try:
        return sum(pyarrow.parquet.read_metadata(file.path).num_rows for file in files)
    except (OSError, pyarrow.ArrowException):
        return None
