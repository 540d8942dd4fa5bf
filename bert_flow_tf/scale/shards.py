"""Embed files of sentences into a folder of Parquet files, resume where that was interrupted, and read the folder.

Each part of the folder has the embeddings of a shard: up to `shard_rows` rows of one input file. Its metadata holds a
digest of the shard, the model and the settings, so that a resumed job keeps the parts whose digest is the same.
"""

import glob
import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from tqdm import tqdm

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import FolderKind, locked, new_file, output_folder
from bert_flow_tf.files.embedding_files import EMBEDDING, embedding_column
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, write_json
from bert_flow_tf.files.reading import is_remote, reading, refuse_address
from bert_flow_tf.files.sentence_files import input_format, matching, read_tables
from bert_flow_tf.model.saved_model import EmbeddingModel
from bert_flow_tf.runs.record import Count

if TYPE_CHECKING:
    import pyarrow

Path = str | os.PathLike[str]

# Readers of Parquet folders skip names that begin with an underscore.
MANIFEST = "_manifest.json"
PART_PRECISIONS = ("float32", "float16")
_PARTS = "part-*.parquet"
PARTS_FOLDER = FolderKind("a folder of embeddings", MANIFEST, (_PARTS, MANIFEST))
# The key of the digest in a part's metadata.
_DIGEST = b"bert_flow_tf"


class PartSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a part's bytes depend on; arguments of `BertFlow.encode_dataset`."""

    shard_rows: int
    precision: str = PART_PRECISIONS[0]
    normalize_embeddings: bool = False
    batch_size: int | None = None


class Manifest(msgspec.Struct, kw_only=True):
    """The `_manifest.json` of a folder of embeddings.

    Attributes:
      model: a `BertFlow.fingerprint`.
      parts: the rows of each part, by file name and in the input's order; empty until the folder is complete.
    """

    format_version: int = FORMAT_VERSION
    model: str
    embedding_size: Count
    settings: PartSettings
    is_complete: bool = False
    parts: dict[str, Count] = msgspec.field(default_factory=dict)


class Parts:
    """The parts of a complete folder of embeddings, with their `manifest` and total `rows`.

    Raises:
      UserError: the folder holds no embeddings, or parts are missing.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self._folder = pathlib.Path(folder)
        expected = "a folder of embeddings, as `encode-folder` writes it"
        self.manifest = read_json(self._folder / MANIFEST, Manifest, expected=expected)
        self.rows = sum(self.manifest.parts.values())
        if not self.manifest.is_complete:
            raise UserError(f"{folder}: parts are missing; run `encode-folder` again")
        if not self.rows:
            raise UserError(f"{folder}: found no embeddings, expected some")

    def blocks(self, generator: np.random.Generator, least: int = 65_536) -> Iterator[np.ndarray]:
        """Yield all rows once, float32 [n, D], from whole parts in a random order; n is at least `least` if possible.

        Raises:
          UserError: a part is missing or damaged.
        """
        names, block = list(self.manifest.parts), list[np.ndarray]()
        held, left = 0, self.rows
        for i in generator.permutation(len(names)):
            block.append(self._read(names[i]))
            held += len(block[-1])
            # The last block would otherwise be a small rest.
            if held >= least and left - held >= least:
                yield np.concatenate(block)
                left -= held
                block, held = [], 0
        if held:
            yield np.concatenate(block)

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
    """A file of sentences; the arguments of `files.sentence_files.read_tables`."""

    path: str
    file_format: str
    column: str | None
    kept: tuple[str, ...]


def input_files(
    inputs: Path | Iterable[Path],
    *,
    file_format: str | None = None,
    column: str | None = None,
    keep: Sequence[str] | None = None,
) -> list[InputFile]:
    """Files that paths, addresses or patterns as of `glob` name, each once; those of a pattern in their names' order.

    Args:
      file_format: None for what each file's ending says.
      column: of the sentences; None for `sentence`.
      keep: names of the columns that are written beside the embeddings; None for the sentences' own.

    Raises:
      UserError: an argument is invalid, or a file does not exist.
    """
    paths: list[str] = []
    for given in [inputs] if isinstance(inputs, str | os.PathLike) else inputs:
        name = os.fspath(given)
        if os.path.lexists(name) or not glob.has_magic(name):
            found = [name] if is_remote(name) or os.path.exists(name) else []
        elif is_remote(name):
            found = matching(name)
        else:
            found = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))
        if not found:
            raise UserError(f"{name}: no such file, expected a file of sentences")
        paths += found
    kept = tuple(keep or [column or "sentence"])
    if EMBEDDING in kept:
        raise ArgumentError(f"keep: found {EMBEDDING}, the name of the embeddings' column, expected others")
    files = [InputFile(path, file_format or input_format(path), column, kept) for path in dict.fromkeys(paths)]
    for argument, value in (("column", column), ("keep", keep and ",".join(keep))):
        if value not in (None, "sentence") and any(file.file_format == "text" for file in files):
            raise ArgumentError(f"{argument}: found {value} for text, which has no columns, expected none")
    return files


class Shard(NamedTuple):
    """Rows of a file that are embedded together, their part's name, and the digest for its metadata."""

    part: str
    sentences: list[str]
    kept: "pyarrow.Table"
    digest: str


class Engine:
    """Embed one shard after the other in this process."""

    def __init__(self, model: EmbeddingModel, folder: Path, settings: PartSettings) -> None:
        self.fingerprint, self.embedding_size = model.fingerprint, model.embedding_size
        self._model, self._folder, self._settings = model, pathlib.Path(folder), settings

    def embed(self, shards: Iterable[Shard]) -> Iterator[tuple[str, int]]:
        """Write the part of each shard; yield its name and rows, in any order.

        Raises:
          UserError: a file cannot be written, or an embedding is not finite.
        """
        return map(self._write, shards)

    def _write(self, shard: Shard) -> tuple[str, int]:
        import pyarrow.parquet

        path, how = self._folder / shard.part, self._settings
        embedded = self._model.encode_parts(shard.sentences, how.batch_size, False, how.normalize_embeddings)
        with np.errstate(over="ignore"):
            stored = np.concatenate([embeddings for _, embeddings in embedded]).astype(how.precision)
        if not np.isfinite(stored).all():
            raise UserError(f"{path}: found an embedding that is not finite in {how.precision}, expected numbers")
        table = shard.kept.append_column(EMBEDDING, embedding_column(stored, how.precision))
        table = table.replace_schema_metadata({_DIGEST: shard.digest})
        # A worker that Ray has given up may still be writing.
        with new_file(path, wait=True) as file:
            pyarrow.parquet.write_table(table, file, use_dictionary=shard.kept.column_names, write_page_checksum=True)
        return shard.part, len(stored)


class ShardsError(UserError):
    """Shards that could not be embedded, after all others were; `problems` has an error for each."""

    def __init__(self, problems: Sequence[UserError]) -> None:
        self.problems = problems
        first = str(problems[0]) if len(problems) == 1 else f"{len(problems)} files or shards cannot be embedded"
        super().__init__(f"{first}; all others are done, correct it and run the same command")


class Job:
    """The embedding of files into the folder `out`; `made` is the number of parts that `run` wrote.

    Args:
      settings: of all parts.
      overwrite: True to replace parts of another model, other input or other settings.

    Raises:
      UserError: no file can be read; or the folder holds something else, or parts of other settings.
    """

    def __init__(self, files: Sequence[InputFile], out: Path, settings: PartSettings, *, overwrite: bool) -> None:
        if settings.precision not in PART_PRECISIONS:
            raise ArgumentError(f"precision: found {settings.precision!r}, expected {' or '.join(PART_PRECISIONS)}")
        if settings.shard_rows < 1:
            raise ArgumentError(f"shard_rows: found {settings.shard_rows}, expected 1 or more")
        refuse_address(out, str(out))
        self.files, self.out, self.settings, self.overwrite = files, pathlib.Path(out), settings, overwrite
        self.made = 0
        if any(self.out.resolve() in pathlib.Path(file.path).resolve().parents for file in files):
            raise ArgumentError(f"input: found files in {out}, which gets the embeddings, expected them elsewhere")
        output_folder(self.out, PARTS_FOLDER, overwrite=True)
        path = self.out / MANIFEST
        self._known = read_json(path, Manifest, expected="the manifest of embeddings") if path.exists() else None
        if self._known is not None:
            for name in PartSettings.__struct_fields__:
                self._check_same(name, getattr(settings, name), getattr(self._known.settings, name))
        errors = []
        for file in files:
            try:
                next(read_tables(**file._asdict(), rows=1), None)
                return
            except UserError as error:
                errors.append(error)
        raise errors[0]

    def _check_same(self, name: str, found: object, known: object) -> None:
        if found != known and not self.overwrite:
            raise UserError(f"{self.out}: exists, {name}: found {found}, its parts have {known} (or --overwrite)")

    def run(self, engine: Engine, *, show_progress_bar: bool | None = None) -> Manifest:
        """Return the folder's manifest after the engine has made the missing parts; done parts stay if it fails.

        A `show_progress_bar` of None shows it on a terminal only.

        Raises:
          ShardsError: files cannot be read, and all others are done.
          UserError: the folder's parts are of another model or input, or parts cannot be written.
        """
        if self._known is not None:
            self._check_same("model", engine.fingerprint, self._known.model)
        manifest = Manifest(model=engine.fingerprint, embedding_size=engine.embedding_size, settings=self.settings)
        problems: list[UserError] = []
        hidden = None if show_progress_bar is None else not show_progress_bar
        with locked(self.out), tqdm(desc="encode", unit=" sentences", disable=hidden) as progress:
            write_json(self.out / MANIFEST, manifest)
            for part, rows in engine.embed(self._missing(manifest, problems)):
                manifest.parts[part] = rows
                self.made += 1
                progress.update(rows)
            if problems:
                raise ShardsError(problems)
            for path in self.out.glob(_PARTS):
                if path.name not in manifest.parts:
                    self._check_same("input", "other files", path.name)
                    path.unlink()
            manifest.parts, manifest.is_complete = dict(sorted(manifest.parts.items())), True
            write_json(self.out / MANIFEST, manifest)
        return manifest

    def _missing(self, manifest: Manifest, problems: list[UserError]) -> Iterator[Shard]:
        """Yield the shards without a part; the others go into the manifest, and unreadable files into `problems`."""
        basis = msgspec.json.encode([manifest.model, self.settings])
        for number, file in enumerate(self.files):
            try:
                tables = read_tables(**file._asdict(), rows=self.settings.shard_rows)
                for i, (sentences, kept) in enumerate(tables):
                    name = f"part-{number:05d}-{i:05d}.parquet"
                    if (self.out / name).is_dir():
                        problems.append(UserError(f"{self.out / name}: found a folder, expected a file or nothing"))
                        continue
                    with reading(file.path, "columns to keep"):
                        rows = repr([sentences, kept.to_pydict()])
                    digest = hashlib.sha256(basis + rows.encode()).hexdigest()
                    if (found := _digest_of(self.out / name)) == digest:
                        manifest.parts[name] = len(sentences)
                        continue
                    if found is not None:
                        self._check_same("input", "other rows", name)
                    yield Shard(name, sentences, kept, digest)
            except UserError as error:
                problems.append(error)


def _digest_of(path: pathlib.Path) -> str | None:
    """The digest in a part's metadata; None if the part is missing or damaged."""
    import pyarrow.parquet

    try:
        return (pyarrow.parquet.read_schema(path).metadata or {}).get(_DIGEST, b"").decode()
    except (OSError, pyarrow.ArrowException):
        return None
