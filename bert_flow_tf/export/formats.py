"""Formats of exports and their options, without TensorFlow."""

import dataclasses
import os
import pathlib

from bert_flow_tf.common.atomic import FolderKind, output_folder
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.settings import DTYPES, Settings, flag
from bert_flow_tf.common.version import (
    DESCRIPTION_FILE,
    ONNX_DATA_FILE,
    ONNX_FILE,
    OPENVINO_FILE,
)
from bert_flow_tf.encoder.convert.folders import SENTENCE_TRANSFORMERS_EXPORT
from bert_flow_tf.model.saved_model import is_saved_model

TF_SAVEDMODEL = "savedmodel"
ONNX = "onnx"
OPENVINO = "openvino"
_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
# The first format is the default.
EXPORT_FORMATS = {
    TF_SAVEDMODEL: FolderKind(
        "an export",
        "saved_model.pb",
        ("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"),
    ),
    "sentence-transformers": SENTENCE_TRANSFORMERS_EXPORT,
    ONNX: FolderKind(
        "an ONNX export",
        ONNX_FILE,
        (DESCRIPTION_FILE, ONNX_FILE, ONNX_DATA_FILE, "config.json", *_TOKENIZER_FILES),
    ),
    OPENVINO: FolderKind(
        "an export for OpenVINO",
        OPENVINO_FILE,
        (DESCRIPTION_FILE, "openvino_model.*", "config.json", *_TOKENIZER_FILES),
    ),
}


INT8 = "int8"
_FORMATS_OF_DTYPES = {DTYPES[1]: TF_SAVEDMODEL, INT8: ONNX}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """The settings of an export."""

    format: str = flag(TF_SAVEDMODEL, "Format of the export.", choices=tuple(EXPORT_FORMATS))
    version: int | None = flag(
        None, "Version of a SavedModel.  [default: the next one]", ge=1, le=2**63 - 1
    )
    normalize: bool = flag(False, "Scale every embedding to norm 1.")
    low_dim: int | None = flag(None, "Average channels to N.  [default: the run's]")
    max_seq_length: int | None = flag(None, "Word pieces per sentence.  [default: the run's]", ge=3)
    truncate_dim: int | None = flag(None, "Leading channels to keep.  [default: the run's]", ge=1)
    dtype: str = flag(
        DTYPES[0],
        "Of the matrices: bfloat16 of a SavedModel, int8 of ONNX.",
        choices=(DTYPES[0], *_FORMATS_OF_DTYPES),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format in (ONNX, OPENVINO):
            check_installed("tf2onnx", ONNX, "format", ArgumentError)
        if self.format == OPENVINO:
            check_installed("openvino", OPENVINO, "format", ArgumentError)
        if self.dtype == INT8:
            check_installed("onnxruntime", ONNX, "dtype", ArgumentError)
        needed = {
            "version": TF_SAVEDMODEL if self.version else self.format,
            "dtype": _FORMATS_OF_DTYPES.get(self.dtype, self.format),
        }
        for name, expected in needed.items():
            if self.format != expected:
                found = f"{getattr(self, name)} with the format {self.format}"
                raise ArgumentError(f"{name}: found {found}, expected {expected}")


def export_path(
    out_dir: str | os.PathLike,
    settings: ExportSettings,
    *,
    overwrite: bool = False,
    flag: str | None = None,
) -> pathlib.Path:
    """Return the folder that an export writes, `out_dir` or its version.

    Raises:
      UserError: the folder exists, or `overwrite` has no version; the error names `out_dir` as
        `flag`.
    """
    path = pathlib.Path(out_dir).absolute()
    version = settings.version
    if settings.format == TF_SAVEDMODEL:
        if is_saved_model(path):
            raise UserError(
                f"{flag or path}: holds a saved model, expected a folder of exports, or a new one"
            )
        if version is None and overwrite:
            raise ArgumentError("overwrite: missing the version to replace")
        if version is None:
            names = [entry.name for entry in path.iterdir()] if path.is_dir() else []
            version = 1 + max(
                (int(name) for name in names if name.isascii() and name.isdigit()), default=0
            )
        path = path / str(version)
        flag = flag and f"{flag}/{version}"
    return output_folder(path, EXPORT_FORMATS[settings.format], overwrite=overwrite, flag=flag)
