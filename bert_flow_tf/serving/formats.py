"""The formats of exports and their options, checked before TensorFlow loads."""

import dataclasses
import importlib.util
import os
import pathlib

from bert_flow_tf.errors import ArgumentError, UserError, nearest, pip_install
from bert_flow_tf.files.atomic import FolderKind, output_folder
from bert_flow_tf.model.saved_model import is_saved_model
from bert_flow_tf.serving import DTYPES

SAVEDMODEL = "savedmodel"
DESCRIPTION_FILE = "export.json"
ONNX_FILE = "model.onnx"
_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A format of exports.

    Attributes:
      writer: "module:function" of a function from model, `export.Description` and folder to the embeddings of
        `export.CHECKED_SENTENCES` by the files that it wrote, or None if they cannot be computed here.
      folder: the kind of folder that is written.
      needs: module that the writer needs, which the extra of the format's name installs; None for none.
      tolerance: largest difference from the model, relative to a channel's largest value where that is above 1.
    """

    writer: str
    folder: FolderKind
    needs: str | None = None
    tolerance: float = 1e-4


# The first is the default.
EXPORT_FORMATS = {
    SAVEDMODEL: ExportFormat(
        "bert_flow_tf.serving.served_model:write_savedmodel",
        FolderKind(
            "an export",
            "saved_model.pb",
            ("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"),
        ),
    ),
    "sentence-transformers": ExportFormat(
        "bert_flow_tf.serving.sentence_transformers:write_sentence_transformers",
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
    "onnx": ExportFormat(
        "bert_flow_tf.serving.onnx:write_onnx",
        FolderKind("an ONNX export", ONNX_FILE, (DESCRIPTION_FILE, ONNX_FILE, *_TOKENIZER_FILES)),
        needs="tf2onnx",
        tolerance=1e-5,
    ),
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
    """Path of the folder that an export writes: `out_dir`, or its version in it for a SavedModel.

    Args:
      out_dir, format, version, dtype, overwrite: see `export.export_model`.
      flag: the name of `out_dir` in errors, such as `--out=DIR`.

    Raises:
      UserError: an option is unknown or does not fit the format, a library is missing, or the folder exists and may
        not be overwritten.
    """
    if format not in EXPORT_FORMATS:
        expected = f"one of {', '.join(EXPORT_FORMATS)}{nearest(str(format), EXPORT_FORMATS)}"
        raise ArgumentError(f"format: found {format!r}, expected {expected}")
    needs = EXPORT_FORMATS[format].needs
    if needs is not None and importlib.util.find_spec(needs) is None:
        raise ArgumentError(f"format: {needs} is not installed: {pip_install(format)}")
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype: found {dtype}, expected {' or '.join(DTYPES)}")
    path = pathlib.Path(out_dir).absolute()
    if format == SAVEDMODEL:
        if is_saved_model(path):
            raise UserError(f"{flag or path}: holds a saved model, expected a folder of exports, or a new one")
        if version is None and overwrite:
            raise ArgumentError("overwrite: missing `version`, the one to replace", ["version"])
        if version is None:
            names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
            version = 1 + max((int(name) for name in names if name.isascii() and name.isdigit()), default=0)
        if version < 1:
            raise ArgumentError(f"version: found {version}, expected a positive whole number")
        path, flag = path / str(version), flag and f"{flag}/{version}"
    elif version is not None or dtype != DTYPES[0]:
        argument, value = ("dtype", dtype) if version is None else ("version", version)
        raise ArgumentError(f"{argument}: found {value} with the format {format}, expected it with {SAVEDMODEL} alone")
    return output_folder(path, EXPORT_FORMATS[format].folder, overwrite=overwrite, flag=flag)
