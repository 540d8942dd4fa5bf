"""Read files; errors are one line that names the file."""

import contextlib
import hashlib
import math
import os
import pathlib
import re
from collections.abc import Iterator

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.version import DESCRIPTION_FILE

AnyPath = str | os.PathLike[str]
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


@contextlib.contextmanager
def reading(path: str | os.PathLike, expected: str) -> Iterator[None]:
    """Turn any exception into a `UserError`, `PATH: cannot be read as EXPECTED: REASON`.

    `path` names the file, `expected` its content with an article: "a run's settings". What an
    argument's check says of a value in the file comes after the file's name.
    """
    try:
        yield
    except ArgumentError as error:
        raise UserError(f"{path}: {error}") from error
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file, expected {expected}") from error
    except Exception as error:
        reason = (
            getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        )
        raise UserError(f"{path}: cannot be read as {expected}: {reason[:300]}") from error


def read_text(path: str | os.PathLike, expected: str) -> str:
    with reading(path, expected):
        return pathlib.Path(path).read_bytes().decode("utf-8-sig")


def read_lines(
    path: str | os.PathLike, expected: str = "a text file", *, keep_empty_end: bool = False
) -> list[str]:
    """Return a UTF-8 file's lines without empty lines at the end."""
    text = read_text(path, expected)
    lines = (
        [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    )
    while lines and not lines[-1] and not keep_empty_end:
        lines.pop()
    return lines


def parse_number(text: str, source: str) -> float:
    """Parse a finite number; a `UserError` begins with `source`."""
    with reading(source, "a number"):
        number = float(text)
    if not math.isfinite(number):
        raise UserError(f"{source}: found {text!r}, expected a finite number")
    return number


def is_remote(path: str | os.PathLike) -> bool:
    """True for an address that fsspec opens: `s3://bucket/name`, `https://…`."""
    return _ADDRESS.match(os.fspath(path)) is not None


def check_local(path: str | os.PathLike, name: str) -> None:
    """Raise `UserError`, starting with `name`, for addresses and non-UTF-8 names."""
    if is_remote(path):
        raise UserError(
            f"{name}: found an address, expected a path in the file system, such as a mounted "
            "bucket"
        )
    if re.search("[\ud800-\udfff]", os.fspath(path)):
        # TensorFlow and pyarrow could not write it, after all the work.
        raise UserError(f"{name}: found a name that is not UTF-8, expected UTF-8")


def file_digest(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with reading(path, "a file"), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def is_export(folder: str | os.PathLike) -> bool:
    """True for a folder with an export's description, of any format."""
    return os.path.isfile(os.path.join(folder, DESCRIPTION_FILE))
