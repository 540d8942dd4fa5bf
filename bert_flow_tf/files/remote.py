"""Files of other machines, read through fsspec by their address: `s3://bucket/name`, `gs://…`, `hdfs://…`, `https://…`."""

import io
import os
from collections.abc import Callable
from typing import Any, BinaryIO

from bert_flow_tf.errors import UserError, pip_install
from bert_flow_tf.files.reading import is_remote  # noqa: F401

# Bytes that are asked of fsspec at once. Its own files take a block of megabytes from their cache for every line.
_BUFFER = 1 << 20


def open_remote(address: str) -> BinaryIO:
    """The file, open for reading from any place; what goes wrong while it is read is an `OSError`.

    Raises:
      UserError: it cannot be opened, or a library for such addresses is not installed.
    """
    opened = _of_file_system(address, lambda system, name: system.open(name, "rb"))
    return io.BufferedReader(_Remote(opened), _BUFFER)


class _Remote(io.RawIOBase):
    """A file of fsspec's whose errors are those of a file: each file system's library has its own."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._tried(lambda: self._file.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._tried(lambda: self._file.seek(offset, whence))
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()

    @staticmethod
    def _tried(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            raise OSError(_reason(error)) from error


def matching(pattern: str) -> list[str]:
    """Addresses of the files that fit a pattern, in their names' order.

    Raises:
      UserError: as `open_remote`.
    """
    return _of_file_system(
        pattern, lambda system, name: sorted(system.unstrip_protocol(found) for found in system.glob(name))
    )


def version_of(address: str) -> str:
    """What changes when the file does, as far as its file system tells: of size, time, and a digest that it has.

    Raises:
      UserError: as `open_remote`, or there is no such file.
    """
    return _of_file_system(address, lambda system, name: str(system.ukey(name)))


def _of_file_system(address: str, get: Any) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise UserError(f"{address}: fsspec is not installed: {pip_install('remote')}") from error
    try:
        return get(*fsspec.url_to_fs(address))
    except FileNotFoundError as error:
        raise UserError(f"{address}: no such file, expected one that can be read") from error
    except Exception as error:
        # Each file system's library has its own.
        raise UserError(
            f"{address}: cannot be read ({_reason(error)}), expected an address that fsspec can read"
        ) from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
