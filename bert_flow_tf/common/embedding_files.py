"""Write embeddings in parts as NPY or Parquet."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_flow_tf.common.atomic import new_file
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading

if TYPE_CHECKING:
    import pyarrow

STDOUT = "-"
EMBEDDING = "embedding"
OUTPUT_FORMATS = {".npy": "npy", ".parquet": "parquet"}

Write = Callable[[Sequence[str], np.ndarray], object]


def format_of_output(path: str | os.PathLike[str]) -> str:
    """Return the format of a file's ending; raise `UserError` for another one."""
    ending = pathlib.Path(path).suffix.lower()
    if ending not in OUTPUT_FORMATS:
        raise UserError(
            f"{path}: found the ending {ending!r}, expected {', '.join(OUTPUT_FORMATS)}, or "
            "--output_format"
        )
    return OUTPUT_FORMATS[ending]


@contextlib.contextmanager
def embedding_writer(
    path: str | os.PathLike[str], *, file_format: str, width: int
) -> Iterator[Write]:
    """Yield a function that appends sentences and embeddings [k, width].

    The file, or standard output if it is `-`, is written when the block succeeds.

    - `npy`: one float32 array [n, width]; no sentences.
    - `parquet`: columns `sentence`, string, and `embedding`, a list of `width` float32.
    """
    if str(path) != STDOUT:
        with new_file(path) as temporary, _WRITERS[file_format](temporary, width) as write:
            yield write
        return
    with tempfile.TemporaryDirectory() as folder:
        name = pathlib.Path(folder, "embeddings")
        with embedding_writer(name, file_format=file_format, width=width) as write:
            yield write
        with name.open("rb") as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
            sys.stdout.buffer.flush()


@contextlib.contextmanager
def _npy(name: pathlib.Path, width: int) -> Iterator[Write]:
    header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (0, width)}
    with open(name, "wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        start = stream.tell()
        yield lambda sentences, embeddings: stream.write(np.asarray(embeddings, "<f4").tobytes())
        header["shape"] = ((stream.tell() - start) // (4 * width), width)
        stream.seek(0)
        # The header keeps its length, because numpy pads it for any number of rows.
        np.lib.format.write_array_header_1_0(stream, header)


@contextlib.contextmanager
def _parquet(name: pathlib.Path, width: int) -> Iterator[Write]:
    import pyarrow.parquet

    schema = pyarrow.schema(
        [("sentence", pyarrow.string()), (EMBEDDING, pyarrow.list_(pyarrow.float32(), width))]
    )

    def write(sentences: Sequence[str], embeddings: np.ndarray) -> None:
        columns = [
            pyarrow.array(sentences, pyarrow.string()),
            embedding_column(embeddings, "float32"),
        ]
        writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))

    with pyarrow.parquet.ParquetWriter(str(name), schema) as writer:
        yield write


def open_array(path: str | os.PathLike[str]) -> np.ndarray:
    """Return a `.npy` file's embeddings [n, D], which are read when used."""
    with reading(path, "embeddings [n, D]"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if array.ndim != 2 or array.dtype.kind != "f" or not len(array):
            raise ValueError(f"found {array.dtype} of shape {list(array.shape)}, expected numbers")
        return array


def embedding_column(embeddings: np.ndarray, precision: str) -> "pyarrow.FixedSizeListArray":
    """Return embeddings [n, width] as an Arrow array of "float32" or "float16"."""
    import pyarrow

    values = pyarrow.array(np.ascontiguousarray(embeddings, precision).reshape(-1))
    return pyarrow.FixedSizeListArray.from_arrays(values, embeddings.shape[1])


_WRITERS = {"npy": _npy, "parquet": _parquet}
