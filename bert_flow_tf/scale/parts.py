"""What `scale.bulk` wrote, read back block by block in a random order: of all embeddings, a block is in memory."""

import hashlib
import io
import os
import pathlib
from collections.abc import Iterator

import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.embedding_files import EMBEDDING
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import read_file
from bert_flow_tf.scale.bulk import MANIFEST, Manifest

# Of a block, at least; of width 768 they take 200 MB.
BLOCK_ROWS = 65_536
_EXPECTED = "a folder of embeddings, as `encode` writes it"


class Parts:
    """The parts of a folder of embeddings that nothing is missing of.

    Attributes:
      manifest: the folder's.
      rows: of all parts.

    Raises:
      UserError: the folder is none of embeddings, parts are missing, or there are no rows.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self._folder = pathlib.Path(folder)
        self.manifest = read_json(self._folder / MANIFEST, Manifest, expected=_EXPECTED)
        self.rows = sum(part.rows for part in self.manifest.parts.values())
        if missing := self.manifest.shards - len(self.manifest.parts):
            raise UserError(
                f"{folder}: found {missing} of {self.manifest.shards} parts missing, expected all (run `encode` again)"
            )
        if not self.rows:
            raise UserError(f"{folder}: found embeddings of no sentence, expected some")

    def blocks(self, generator: np.random.Generator, least: int = BLOCK_ROWS) -> Iterator[np.ndarray]:
        """Yields all rows once: float32 [n, D] of whole parts in a random order, n at least `least` where there are.

        Raises:
          UserError: a part is not the one that was written.
        """
        names = list(self.manifest.parts)
        block: list[np.ndarray] = []
        held, left = 0, self.rows
        for i in generator.permutation(len(names)):
            block.append(self._read(names[i]))
            held += len(block[-1])
            # So that the last one is no small rest.
            if held >= least and left - held >= least:
                yield np.concatenate(block)
                left -= held
                block, held = [], 0
        if held:
            yield np.concatenate(block)

    def matrix(self) -> np.ndarray:
        """All rows in the input's order, float32 [n, D].

        Raises:
          UserError: a part is not the one that was written.
        """
        return np.concatenate([self._read(name) for name in self.manifest.parts])

    def _read(self, name: str) -> np.ndarray:
        import pyarrow.parquet

        path, part = self._folder / name, self.manifest.parts[name]
        data = read_file(path, _EXPECTED)
        if hashlib.sha256(data).hexdigest() != part.output:
            raise UserError(f"{path}: found other bytes than {MANIFEST} says, expected these (run `encode` again)")
        column = pyarrow.parquet.read_table(io.BytesIO(data), columns=[EMBEDDING]).column(EMBEDDING)
        values = column.combine_chunks().flatten().to_numpy()
        return values.astype(np.float32, copy=False).reshape(part.rows, self.manifest.embedding_size)
