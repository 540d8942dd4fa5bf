"""Embeddings to files, part by part: NPY, Parquet or TFRecord."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np

from bert_flow_tf.atomic import make_directory
from bert_flow_tf.errors import UserError
from bert_flow_tf.sentence_files import import_pyarrow

STDOUT = "-"
FORMATS = {".npy": "npy", ".parquet": "parquet", ".tfrecord": "tfrecord"}
# Room for any number of rows in the header, which is written when their number is known.
_NPY_HEADER = 128


def format_of(path):
    """Name of the format that a file's ending says; "npy" for standard output.

    Raises:
      UserError: the ending says none.
    """
    if str(path) == STDOUT:
        return "npy"
    ending = pathlib.Path(path).suffix
    if ending not in FORMATS:
        raise UserError(f"--out={path}: found the ending {ending!r}, expected {', '.join(FORMATS)}, or --output_format")
    return FORMATS[ending]


@contextlib.contextmanager
def embedding_writer(path, *, file_format, width):
    """Gives a function of a list of sentences and their embeddings [k, width], which writes them after those before.

    The file has its name when the block ends well, and is not there when not.

    - `npy`: one float32 array [n, width]; no sentences.
    - `parquet`: columns `sentence`, string, and `embedding`, a list of `width` float32.
    - `tfrecord`: `tf.train.Example` of `sentence`, UTF-8, and `embedding`, floats.

    Args:
      path: the file; `-` is standard output, which gets it at the end.
      file_format: one of the values of `FORMATS`.
      width: of an embedding.

    Raises:
      UserError: the place cannot be written to, or Parquet's library is missing.
    """
    to_stdout = str(path) == STDOUT
    folder = None if to_stdout else pathlib.Path(path).absolute().parent
    if folder is not None:
        make_directory(folder)
    try:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".embeddings.")
    except OSError as error:
        raise UserError(f"--out={path}: {folder}: cannot be written to ({error.strerror})") from error
    os.close(descriptor)
    try:
        with _WRITERS[file_format](name, width) as write:
            yield write
        if to_stdout:
            with open(name, "rb") as stream:
                shutil.copyfileobj(stream, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            os.chmod(name, 0o644)
            os.replace(name, path)
    finally:
        pathlib.Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def _npy(name, width):
    rows = 0

    def write(sentences, embeddings):
        nonlocal rows
        rows += len(embeddings)
        stream.write(np.ascontiguousarray(embeddings, "<f4").tobytes())

    with open(name, "wb") as stream:
        stream.write(bytes(_NPY_HEADER))
        yield write
        stream.seek(0)
        # Version 1.0 of the format: magic, version, length of the text, the text, padded with spaces.
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}"
        start = b"\x93NUMPY\x01\x00" + (_NPY_HEADER - 10).to_bytes(2, "little")
        stream.write(start + text.encode("latin1").ljust(_NPY_HEADER - 11) + b"\n")


@contextlib.contextmanager
def _parquet(name, width):
    pyarrow = import_pyarrow("--out")
    kind = pyarrow.list_(pyarrow.float32(), width)
    schema = pyarrow.schema([("sentence", pyarrow.string()), ("embedding", kind)])

    def write(sentences, embeddings):
        values = pyarrow.array(np.ascontiguousarray(embeddings, np.float32).reshape(-1))
        columns = [pyarrow.array(sentences, pyarrow.string()), pyarrow.FixedSizeListArray.from_arrays(values, width)]
        writer.write_table(pyarrow.Table.from_arrays(columns, schema=schema))

    with pyarrow.parquet.ParquetWriter(name, schema) as writer:
        yield write


@contextlib.contextmanager
def _tfrecord(name, width):
    import tensorflow as tf

    def write(sentences, embeddings):
        for sentence, embedding in zip(sentences, embeddings, strict=True):
            features = {
                "sentence": tf.train.Feature(bytes_list=tf.train.BytesList(value=[sentence.encode("utf-8")])),
                "embedding": tf.train.Feature(float_list=tf.train.FloatList(value=embedding)),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())

    with tf.io.TFRecordWriter(name) as writer:
        yield write


_WRITERS = {"npy": _npy, "parquet": _parquet, "tfrecord": _tfrecord}
