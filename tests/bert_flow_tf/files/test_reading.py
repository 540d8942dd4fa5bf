"""Whatever a reader raises is one line that names the file."""

import msgspec
import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.reading import read_text, reading
from tests.refusals import user_error


def npy(shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n"
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (lambda path: path.read_text(encoding="utf-8"), b"a\xff"),
        (lambda path: msgspec.json.decode(path.read_bytes(), type=int), b'"a\nb"'),
        # Reading these raises MemoryError, tokenize.TokenError, RecursionError and OverflowError.
        (np.load, npy("(4398046511104,)")),
        (np.load, npy("'''")),
        (np.load, npy("(" * 900 + ")" * 900)),
        (np.load, npy("(99999999999999999999999,)")),
    ],
)
def test_whatever_a_reader_raises_is_one_line(tmp_path, read, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with user_error(f"{path}: cannot be read as a thing: "), reading(path, "a thing"):
        read(path)


def test_missing_files_and_folders_are_named(tmp_path):
    with user_error(f"{tmp_path / 'none'}: no such file", "a thing"):
        read_text(tmp_path / "none", "a thing")
    with user_error(f"{tmp_path}: cannot be read as a thing: "):
        read_text(tmp_path, "a thing")
    with pytest.raises(UserError, match=r"^mine$"), reading("file", "a thing"):
        raise UserError("mine")
