"""The folders `<model>/<version>` of TensorFlow Serving."""

import pathlib

from bert_flow_tf.errors import UserError


def check_destination(out_dir, version, overwrite):
    """Path of the version's folder, where an export may be written.

    Args:
      out_dir: the model's folder.
      version: positive int; None for the one after the highest that is there.
      overwrite: whether the version may be replaced.

    Raises:
      UserError: a file is in the way; `version` is not positive; it exists and `overwrite` is false; what is there is
        no export; or `overwrite` without a version.
    """
    out_dir = pathlib.Path(out_dir).absolute()
    if out_dir.exists() and not out_dir.is_dir():
        raise UserError(f"{out_dir}: found a file, expected a place for a directory")
    if version is None:
        if overwrite:
            raise UserError("--overwrite: found no --version, expected the one to replace")
        return out_dir / str(next_version(out_dir))
    if version < 1:
        raise UserError(f"--version: found {version}, expected a positive whole number")
    path = out_dir / str(version)
    if path.exists() and not overwrite:
        raise UserError(f"{path}: exists, expected a new version, or --overwrite to replace it")
    if path.exists() and not (path / "saved_model.pb").is_file():
        raise UserError(f"{path}: found something without a saved_model.pb, expected an export to overwrite")
    return path


def next_version(out_dir):
    """The version after the highest in the model's folder; 1 where there is none."""
    out_dir = pathlib.Path(out_dir)
    found = [entry.name for entry in out_dir.iterdir()] if out_dir.is_dir() else []
    return 1 + max((int(name) for name in found if name.isascii() and name.isdigit()), default=0)
