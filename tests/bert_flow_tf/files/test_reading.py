"""What is no file, or not the file that is asked for, is refused in one line, soon and in little memory."""

import io
import os
import zipfile

import numpy as np
import pytest

from bert_flow_tf.files import reading
from tests.refusals import user_error


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: path.mkdir(), r"cannot be read (Is a directory)"),
        (lambda path: path.symlink_to("nowhere"), "no such file"),
        (lambda path: path.symlink_to(path), "cannot be read (Too many levels of symbolic links)"),
        (os.mkfifo, "found a pipe or a device"),
        (lambda path: path.symlink_to("/dev/zero"), "found a pipe or a device"),
        (lambda path: path.write_bytes(b"x" * 2_000_000), "found more than 1 MiB"),
    ],
)
def test_what_is_no_file_is_refused(path, make, found):
    make(path)
    with user_error(f"{path}: {found}, expected a thing"):
        reading.read_file(path, "a thing", most=1 << 20)


def test_a_stream_may_be_a_pipe_and_no_device(path):
    readable, writable = os.pipe()
    os.write(writable, b"text")
    os.close(writable)
    assert reading.read_file(f"/dev/fd/{readable}", "a thing", is_stream=True) == b"text"
    assert reading.read_file("/dev/null", "a thing", is_stream=True) == b""
    with user_error("found a pipe or a device"):
        reading.read_file("/dev/zero", "a thing", is_stream=True)


def test_text_is_utf8(path):
    path.write_bytes(b"a\nb\xff")
    with user_error(f"{path}: byte 3 is not UTF-8, expected a thing"):
        reading.read_text(path, "a thing")


def npy(header):
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    "content",
    [
        # 32 TiB, tokenize.TokenError, RecursionError or MemoryError, OverflowError.
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4398046511104,), }\n"),
        npy("{'descr': '''\n"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 900 + ")" * 900 + ", }\n"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,), }\n"),
    ],
)
def test_a_header_that_claims_anything_is_refused(path, content):
    path.write_bytes(content)
    with user_error(f"{path}: not a .npy file ("):
        reading.read_array(path, "a matrix")


def test_arrays_come_back_and_none_is_unpacked(path):
    np.savez(path, a=np.arange(3), b=np.ones([2, 2]))
    arrays = reading.read_arrays(f"{path}.npz", "arrays")
    assert {name: array.tolist() for name, array in arrays.items()} == {"a": [0, 1, 2], "b": [[1, 1], [1, 1]]}
    zeros = io.BytesIO()
    np.save(zeros, np.zeros(10_000))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.npy", zeros.getvalue())
    with user_error(f"{path}: not a .npz file (a.npy is packed), expected arrays"):
        reading.read_arrays(path, "arrays")
