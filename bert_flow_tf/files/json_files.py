"""JSON files: written whole, and read back by type, so that a mistake in one is a line that names file and key."""

import math
import os
import re
from typing import Any, TypeVar

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.files.reading import read_file

# Of every JSON file that this version writes and reads back, and part of the cache keys of converted encoders: to be
# raised when a file, or what an encoder that is made of the same weights computes, changes.
FORMAT_VERSION = 2
# Bytes: thousands of times what a record has. What is read of them takes up to 30 times as much memory.
_LARGEST = 1 << 25
T = TypeVar("T")


class _Version(msgspec.Struct):
    format_version: Any = None


def read_json(path: str | os.PathLike, kind: type[T], *, expected: str, versioned: bool = True) -> T:
    """The contents of a JSON file as `kind`, a `msgspec.Struct` or any other type that msgspec decodes.

    Args:
      kind: the type; keys that a Struct does not name are ignored.
      expected: what the file should be, for errors: "a run's configuration".
      versioned: whether the file is an object whose `format_version` must be `FORMAT_VERSION`.

    Raises:
      UserError: the file cannot be read, is not JSON, is of another format version, or a value is missing or of
        another type; the line names the key.
    """
    data = read_file(path, expected, most=_LARGEST)
    try:
        if versioned:
            version = msgspec.json.decode(data, type=_Version).format_version
            if version != FORMAT_VERSION:
                raise UserError(
                    f"{path}: found format_version {version}, expected {FORMAT_VERSION}: {expected}; another version "
                    "of bert_flow_tf wrote it, recreate it with this one"
                )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: {_in_words(error, expected)}") from error
    return decode_json(data, kind, place=path, expected=expected)


def decode_json(data: str | bytes, kind: type[T], *, place: str | os.PathLike, expected: str) -> T:
    """JSON text as `kind`, like `read_json`; errors name `place`."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{place}: {_in_words(error, expected)}") from error


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes `to_json` of a value that msgspec encodes, whole or not at all."""
    write_atomically(path, to_json(value))


def to_json(value: Any) -> str:
    """The text of a JSON file, indented by 2 and with a line end after it.

    Raises:
      ValueError: a number in the value is not finite.
    """
    # msgspec writes NaN as null: then a reader would miss a number without a word.
    _refuse_not_finite(builtin := msgspec.to_builtins(value))
    return msgspec.json.format(msgspec.json.encode(builtin), indent=2).decode() + "\n"


def _refuse_not_finite(value: Any, place: str = "") -> None:
    """Raises `ValueError` for the first number, in nested dicts and lists, that is NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place or 'value'}: found {value}, expected a finite number")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, one in items:
        _refuse_not_finite(one, f"{place}.{key}" if place else str(key))


def _in_words(error: Exception, expected: str) -> str:
    """A decoding error in one line: the key, what was found, what was expected."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return f"found text that is not JSON ({text}), expected {expected}"
    message, _, place = text.partition(" - at ")
    key = place.strip("`").removeprefix("$").lstrip(".")
    if match := re.fullmatch(r"Expected `(.+)`, got `(.+)`", message):
        message = f"found {match[2]}, expected {match[1]}"
    elif match := re.fullmatch(r"Expected `(\w+)` ([<>]=? .+)", message):
        message = f"found another value, expected {match[1]} {match[2]}"
    elif match := re.fullmatch(r"Object missing required field `(.+)`", message):
        key, message = f"{key}.{match[1]}" if key else match[1], "found nothing"
    if "expected" not in message:
        message = f"{message[0].lower()}{message[1:]}, expected {expected}"
    return f"{key}: {message}" if key else message
