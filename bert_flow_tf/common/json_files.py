"""Write JSON files whole, and read them by type."""

import json
import os
import pathlib
from typing import Annotated, Any, TypeVar

import msgspec

from bert_flow_tf.common.atomic import write_atomically
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.version import FORMAT_VERSION

CONFIG_FILE = "config.json"  # of a run, and of Hugging Face's encoder folders
T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


def read_json(
    path: str | os.PathLike, kind: type[T], *, expected: str, versioned: bool = True
) -> T:
    """Read a JSON file as `kind`, any type that msgspec decodes.

    Unknown keys are ignored. `expected` names the content in errors: "a run's configuration".

    Raises:
      UserError: the file is not JSON of this type, or, if `versioned`, its `format_version` is not
        `FORMAT_VERSION`.
    """
    with reading(path, expected):
        data = pathlib.Path(path).read_bytes()
        if (
            versioned
            and (version := msgspec.json.decode(data, type=dict).get("format_version"))
            != FORMAT_VERSION
        ):
            wanted = (
                f"{FORMAT_VERSION}: {expected}; make it again with this version of bert_flow_tf"
            )
            raise UserError(f"{path}: found format_version {version}, expected {wanted}")
        return msgspec.json.decode(data, type=kind, dec_hook=_array)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as JSON, whole or not at all.

    Raises:
      ValueError: a number is not finite, which msgspec would write as null.
    """
    builtins = msgspec.to_builtins(value, enc_hook=_list)
    text = json.dumps(builtins, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, f"{text}\n")


def _list(value: Any) -> Any:
    """Return an array as a list."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise NotImplementedError(f"found a {type(value).__name__}")


def _array(kind: type, value: Any) -> Any:
    """Return an array of numbers for a field of that type."""
    # Commands that read no arrays start without NumPy.
    import numpy as np

    return np.asarray(value, np.float32) if kind is np.ndarray else value


def is_run(folder: pathlib.Path) -> bool:
    """True if a folder's `config.json` is a run's, of any format version."""
    path = folder / CONFIG_FILE
    # Hugging Face's encoder folders also have a file of this name.
    found = (
        read_json(path, object, expected="a run's configuration", versioned=False)
        if path.is_file()
        else None
    )
    return isinstance(found, dict) and "encoder_trained" in found
