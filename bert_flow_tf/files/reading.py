"""Opens and reads files that others may have written: whatever is wrong with one is a line that names it."""

import io
import lzma
import os
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from bert_flow_tf.errors import UserError

if TYPE_CHECKING:
    import numpy as np

Path = str | os.PathLike[str]

# What numpy and zipfile raise for bytes that are no arrays.
_NO_ARRAY = (
    *(OSError, ValueError, TypeError, SyntaxError, EOFError, MemoryError, OverflowError, RecursionError, RuntimeError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


def open_file(path: Path, expected: str, *, name: str | None = None, is_stream: bool = False) -> BinaryIO:
    """The file, open for reading; `name` is what errors call it.

    A stream may be a pipe, whose writer is waited for, or a terminal.

    Raises:
      UserError: it cannot be opened, or is a folder, a device, or a pipe without being a stream.
    """
    name = name or str(path)
    try:
        # Without a writer a pipe would not open otherwise.
        file = open(path, "rb", opener=None if is_stream else _open_at_once)  # noqa: SIM115 (the caller closes it)
    except FileNotFoundError:
        raise UserError(f"{name}: no such file, expected {expected}") from None
    except (OSError, ValueError) as error:
        raise cannot_be_read(name, error, expected) from error
    found = os.fstat(file.fileno())
    usable = stat.S_ISREG(found.st_mode)
    if is_stream:
        is_endless = stat.S_ISCHR(found.st_mode) and found.st_rdev != os.stat(os.devnull).st_rdev
        usable = file.isatty() or not is_endless
    if not usable:
        file.close()
        raise UserError(f"{name}: found a pipe or a device, expected {expected}")
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def cannot_be_read(name: Path, error: Exception, expected: str) -> UserError:
    """The error for a file that the system does not open or read."""
    return UserError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error}), expected {expected}")


def read_file(path: Path, expected: str, *, most: int | None = None, is_stream: bool = False) -> bytes:
    """The bytes of a file.

    Raises:
      UserError: as `open_file`, it cannot be read, or has more than `most` bytes.
    """
    with open_file(path, expected, is_stream=is_stream) as file:
        try:
            data = file.read() if most is None else file.read(most + 1)
        except OSError as error:
            raise cannot_be_read(path, error, expected) from error
    if most is not None and len(data) > most:
        raise UserError(f"{path}: found more than {most >> 20} MiB, expected {expected}")
    return data


def blocks_of(path: Path, expected: str) -> Iterator[bytes]:
    """The bytes of a file, up to a MiB at a time.

    Raises:
      UserError: as `open_file`, or it cannot be read.
    """
    with open_file(path, expected) as file:
        try:
            while block := file.read(1 << 20):
                yield block
        except OSError as error:
            raise cannot_be_read(path, error, expected) from error


def read_text(path: Path, expected: str) -> str:
    """The text of a file in UTF-8.

    Raises:
      UserError: as `read_file`, or it is not UTF-8.
    """
    try:
        return read_file(path, expected).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8, expected {expected}") from error


def read_array(path: Path, expected: str, *, name: str | None = None) -> "np.ndarray":
    """The array in an NPY file; `name` is what errors call it.

    Raises:
      UserError: as `open_file`, or it holds something else, or Python objects.
    """
    name = name or str(path)
    with open_file(path, expected, name=name) as file:
        return array_in(file, name, expected)


def read_arrays(path: Path, expected: str) -> "dict[str, np.ndarray]":
    """The arrays by name in an NPZ file as `numpy.savez` writes it, which packs nothing.

    Raises:
      UserError: as `read_array`, or an array is packed: it could be any larger than the file.
    """
    with open_file(path, expected) as file:
        try:
            with zipfile.ZipFile(file) as members:
                for member in members.infolist():
                    if member.compress_type != zipfile.ZIP_STORED or member.file_size > os.fstat(file.fileno()).st_size:
                        raise ValueError(f"{member.filename} is packed")
                return {
                    member.filename.removesuffix(".npy"): array_in(
                        io.BytesIO(members.read(member)), f"{path}, {member.filename}", expected
                    )
                    for member in members.infolist()
                }
        except _NO_ARRAY as error:
            raise UserError(f"{path}: not a .npz file ({error}), expected {expected}") from error


def array_in(file: BinaryIO, name: str, expected: str) -> "np.ndarray":
    """`read_array` of a file that is open."""
    # Commands that read no array do not wait for numpy.
    import numpy as np

    try:
        return np.lib.format.read_array(file, allow_pickle=False)
    except _NO_ARRAY as error:
        reason = str(error) or type(error).__name__
        raise UserError(f"{name}: not a .npy file ({reason.partition(': ')[0][:200]}), expected {expected}") from error
