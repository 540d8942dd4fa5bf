"""Whatever a reader raises is one line that names the file."""

import msgspec
import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.reading import read_text, reading
from tests.refusals import user_error


def npy(header):
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (lambda path: path.read_text(encoding="utf-8"), b"a\xff"),
        (lambda path: msgspec.json.decode(path.read_bytes(), type=int), b'"a\nb"'),
        # MemoryError, tokenize.TokenError, RecursionError, OverflowError.
        (np.load, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4398046511104,), }\n")),
        (np.load, npy("{'descr': '''\n")),
        (np.load, npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 900 + ")" * 900 + ", }\n")),
        (np.load, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,), }\n")),
    ],
)
def test_whatever_a_reader_raises_is_one_line(tmp_path, read, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with user_error(f"{path}: cannot be read as a thing: "), reading(path, "a thing"):
        read(path)


def test_missing_file_and_folder_are_named(tmp_path):
    with user_error(f"{tmp_path / 'none'}: no such file, expected a thing"):
        read_text(tmp_path / "none", "a thing")
    with user_error(f"{tmp_path}: cannot be read as a thing: Is a directory"):
        read_text(tmp_path, "a thing")


def test_user_error_stays():
    with pytest.raises(UserError, match=r"^mine$"), reading("file", "a thing"):
        raise UserError("mine")
