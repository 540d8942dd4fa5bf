"""Formats of exports and their options, without TensorFlow."""

import os
import pathlib

from bert_flow_tf.errors import ArgumentError, UserError, check_installed, suggest
from bert_flow_tf.files.atomic import FolderKind, output_folder
from bert_flow_tf.model.saved_model import is_saved_model
from bert_flow_tf.serving import DTYPES

SAVEDMODEL, ONNX = "savedmodel", "onnx"
DESCRIPTION_FILE = "export.json"
ONNX_FILE = "model.onnx"
_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
# The first format is the default.
EXPORT_FORMATS = {
    SAVEDMODEL: FolderKind(
        "an export", "saved_model.pb", ("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra")
    ),
    "sentence-transformers": FolderKind(
        "an export for sentence-transformers",
        "modules.json",
        (
            *(DESCRIPTION_FILE, "config.json", "model.safetensors", *_TOKENIZER_FILES, "source.json", "modules.json"),
            *("sentence_bert_config.json", "config_sentence_transformers.json"),
            *("*_WeightedLayerPooling", "*_Pooling", "*_Dense", "*_Normalize"),
        ),
        lambda path: path.with_name(DESCRIPTION_FILE).is_file(),
    ),
    ONNX: FolderKind("an ONNX export", ONNX_FILE, (DESCRIPTION_FILE, ONNX_FILE, *_TOKENIZER_FILES)),
}


def export_path(
    out_dir: str | os.PathLike,
    format: str,
    *,
    version: int | None = None,
    dtype: str = DTYPES[0],
    overwrite: bool = False,
    flag: str | None = None,
) -> pathlib.Path:
    """Return the folder that an export writes, `out_dir` or its version.

    The arguments are those of `export.export_model`; errors name `out_dir` as `flag`.

    Raises:
      UserError: an option is unknown or does not fit the format, a library is missing, or the folder exists.
    """
    if format not in EXPORT_FORMATS:
        expected = f"one of {', '.join(EXPORT_FORMATS)}{suggest(str(format), EXPORT_FORMATS)}"
        raise ArgumentError(f"format: found {format!r}, expected {expected}")
    if format == ONNX:
        check_installed("tf2onnx", ONNX, "format", ArgumentError)
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype: found {dtype}, expected {' or '.join(DTYPES)}")
    path = pathlib.Path(out_dir).absolute()
    if format == SAVEDMODEL:
        if is_saved_model(path):
            raise UserError(f"{flag or path}: holds a saved model, expected a folder of exports, or a new one")
        if version is None and overwrite:
            raise ArgumentError("overwrite: missing the version to replace")
        if version is None:
            names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
            version = 1 + max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)
        if not 1 <= version < 2**63:
            raise ArgumentError(f"version: found {version}, expected a whole number from 1 to 2**63 - 1")
        path, flag = path / str(version), flag and f"{flag}/{version}"
    elif version is not None or dtype != DTYPES[0]:
        argument, value = ("dtype", dtype) if version is None else ("version", version)
        raise ArgumentError(f"{argument}: found {value} with the format {format}, expected {SAVEDMODEL}")
    return output_folder(path, EXPORT_FORMATS[format], overwrite=overwrite, flag=flag)
