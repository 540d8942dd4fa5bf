"""The formats that a model can be exported in."""

import dataclasses
import importlib.util
import os
import pathlib
import pkgutil
from collections.abc import Callable
from typing import Any

from bert_flow_tf.errors import ArgumentError, UserError, nearest, pip_install
from bert_flow_tf.files.atomic import FolderKind, output_folder
from bert_flow_tf.model.saved_model import is_saved_model

DESCRIPTION_FILE = "export.json"
ONNX_FILE = "model.onnx"
_VERSION = FolderKind(
    what="an export",
    marker="saved_model.pb",
    names=("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"),
)
_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")


@dataclasses.dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
      function: name of the function that writes it, for `exporter`.
      folder: the kind of folder that is written; None for a SavedModel, which is a version in a model's folder.
      needs: name of the module that writes it, which the extra of the format's name installs; None for none.
    """

    function: str
    folder: FolderKind | None = None
    needs: str | None = None


# The first is the default.
FORMATS = {
    "savedmodel": Format("bert_flow_tf.serving.export:export"),
    "sentence-transformers": Format(
        "bert_flow_tf.serving.sentence_transformers:export",
        FolderKind(
            "an export for sentence-transformers",
            "modules.json",
            (
                *(DESCRIPTION_FILE, "config.json", "model.safetensors", *_TOKENIZER_FILES, "modules.json"),
                *("sentence_bert_config.json", "config_sentence_transformers.json"),
                *("*_WeightedLayerPooling", "*_Pooling", "*_Dense", "*_Normalize"),
            ),
            lambda path: path.with_name(DESCRIPTION_FILE).is_file(),
        ),
    ),
    "onnx": Format(
        "bert_flow_tf.serving.onnx:export",
        FolderKind("an ONNX export", ONNX_FILE, (DESCRIPTION_FILE, ONNX_FILE, *_TOKENIZER_FILES)),
        needs="tf2onnx",
    ),
}


def check_format(name: str) -> Format:
    """The format of that name.

    Raises:
      UserError: there is no such format, or what writes it is not installed.
    """
    if name not in FORMATS:
        raise ArgumentError(
            f"format: found {name!r}, expected one of {', '.join(FORMATS)}{nearest(str(name), FORMATS)}"
        )
    needs = FORMATS[name].needs
    if needs is not None and importlib.util.find_spec(needs) is None:
        raise ArgumentError(f"format: {needs} is not installed: {pip_install(name)}")
    return FORMATS[name]


def exporter(name: str) -> Callable[..., Any]:
    """The function that writes the format; raises as `check_format`."""
    return pkgutil.resolve_name(check_format(name).function)


def version_folder(
    out_dir: str | os.PathLike, version: int | None, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """Path of a SavedModel's version in `out_dir`; without a version, the one after the highest there.

    `flag` is the name of `out_dir` in errors, `--out=DIR`.

    Raises:
      UserError: `version` is not positive; it exists and `overwrite` is false; it is no export; `overwrite` without a
        version; or the folder cannot be written to.
    """
    out_dir = pathlib.Path(out_dir).absolute()
    if is_saved_model(out_dir):
        raise UserError(f"{flag or out_dir}: holds a saved model, expected a folder of exports, or a new one")
    if version is None:
        if overwrite:
            message = "overwrite: found no `version`, expected that of the one to replace"
            raise ArgumentError(message, arguments=["version"])
        found = [path.name for path in out_dir.iterdir()] if out_dir.is_dir() else []
        version = 1 + max((int(name) for name in found if name.isascii() and name.isdigit()), default=0)
    if version < 1:
        raise ArgumentError(f"version: found {version}, expected a positive whole number")
    return output_folder(out_dir / str(version), _VERSION, overwrite=overwrite, flag=flag and f"{flag}/{version}")
