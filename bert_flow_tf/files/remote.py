"""Files of other machines, read through fsspec by their address: `s3://bucket/name`, `gs://…`, `hdfs://…`, `https://…`."""

import os
import re
from typing import Any, BinaryIO

from bert_flow_tf.errors import UserError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_remote(path: str | os.PathLike) -> bool:
    """Whether a path is an address, which fsspec opens."""
    return _ADDRESS.match(os.fspath(path)) is not None


def open_remote(address: str) -> BinaryIO:
    """The file, open for reading from any place.

    Raises:
      UserError: it cannot be opened, or a library for such addresses is not installed.
    """
    return _of_file_system(address, lambda system, name: system.open(name, "rb"))


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
        raise UserError(f"{address}: fsspec is not installed: pip install 'bert-flow-tf[remote]'") from error
    try:
        return get(*fsspec.url_to_fs(address))
    except FileNotFoundError as error:
        raise UserError(f"{address}: no such file, expected one that can be read") from error
    except Exception as error:
        # Each file system's library has its own.
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{address}: cannot be read ({reason}), expected an address that fsspec can read") from error
