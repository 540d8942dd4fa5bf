"""The folder `<model>/<version>` of TensorFlow Serving."""

import pathlib

from bert_flow_tf.errors import UserError


def check_destination(out_dir, version, overwrite):
    """Path of the version's folder, where an export may be written.

    Raises:
      UserError: `version` is not positive; it exists and `overwrite` is false; or what is there is no export.
    """
    if version < 1:
        raise UserError(f"--version: found {version}, expected a positive whole number")
    path = pathlib.Path(out_dir).absolute() / str(version)
    if path.exists() and not overwrite:
        raise UserError(f"{path}: exists, expected a new version, or --overwrite to replace it")
    if path.exists() and not (path / "saved_model.pb").is_file():
        raise UserError(f"{path}: found something without a saved_model.pb, expected an export to overwrite")
    return path
