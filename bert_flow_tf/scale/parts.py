"""A folder of embeddings: its manifest, and its parts read block by block in a random order."""

import os
import pathlib
from collections.abc import Iterator

import msgspec
import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.embedding_files import EMBEDDING
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json

# Readers of Parquet folders skip names that begin with an underscore.
MANIFEST = "_manifest.json"
PART_PRECISIONS = ("float32", "float16")
# Rows of a block, at least; of width 768 they take 200 MB.
BLOCK_ROWS = 65_536


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
    embedding_size: int
    settings: PartSettings
    is_complete: bool = False
    parts: dict[str, int] = msgspec.field(default_factory=dict)


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
        if not (self.manifest.is_complete and self.rows):
            raise UserError(f"{folder}: parts are missing; run `encode-folder` again")

    def blocks(self, generator: np.random.Generator, least: int = BLOCK_ROWS) -> Iterator[np.ndarray]:
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

    def matrix(self) -> np.ndarray:
        """All rows in the input's order, float32 [n, D]; raises as `blocks`."""
        return np.concatenate([self._read(name) for name in self.manifest.parts])

    def _read(self, name: str) -> np.ndarray:
        import pyarrow.parquet

        path, rows = self._folder / name, self.manifest.parts[name]
        try:
            with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
                column = file.read([EMBEDDING]).column(EMBEDDING)
        except (OSError, pyarrow.ArrowException) as error:
            problem = f"missing or damaged ({' '.join(str(error).split())})"
            raise UserError(f"{path}: {problem}; remove it and run `encode-folder` again") from error
        values = column.combine_chunks().flatten().to_numpy().astype(np.float32, copy=False)
        if values.size != rows * self.manifest.embedding_size:
            raise UserError(f"{path}: found {len(column)} rows, expected {rows}; run `encode-folder` again")
        return values.reshape(rows, -1)
