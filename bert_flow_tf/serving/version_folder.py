"""The folders `<model>/<version>` of TensorFlow Serving."""

import os
import pathlib

from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.outputs import FolderKind, output_folder

_EXPORT = FolderKind(
    what="an export",
    marker="saved_model.pb",
    names=("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"),
)


def check_destination(
    out_dir: str | os.PathLike, version: int | None, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """Path of the version's folder below `out_dir`, where an export may be written; without a version the next one.

    `flag` is what a command calls `out_dir`, `--out=DIR`, for errors.

    Raises:
      UserError: `version` is not positive; it exists and `overwrite` is false; what is there is no export; `overwrite`
        without a version; or the place cannot be written to.
    """
    out_dir = pathlib.Path(out_dir).absolute()
    if version is None:
        if overwrite:
            raise ArgumentError("overwrite: found no version to replace, expected its number as version")
        found = [path.name for path in out_dir.iterdir()] if out_dir.is_dir() else []
        version = 1 + max((int(name) for name in found if name.isascii() and name.isdigit()), default=0)
    if version < 1:
        raise ArgumentError(f"version: found {version}, expected a positive whole number")
    path = out_dir / str(version)
    return output_folder(path, _EXPORT, overwrite=overwrite, flag=flag and f"{flag}/{version}")
