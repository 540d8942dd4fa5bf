"""The folder `<model>/<version>` of TensorFlow Serving: there whole or not at all."""

import contextlib
import pathlib
import shutil
import tempfile

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


@contextlib.contextmanager
def new_version(path):
    """Gives a temporary folder beside `path`, which takes its name when the block ends well and is removed when not."""
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        workspace = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise UserError(f"{path.parent}: cannot be written: {error.strerror}") from error
    try:
        # TensorFlow makes the folder itself, with the permissions that others may read.
        folder = workspace / "new"
        yield folder
        if path.exists():
            path.rename(workspace / "old")
        try:
            folder.rename(path)
        except OSError:
            if (workspace / "old").exists():
                (workspace / "old").rename(path)
            raise
    finally:
        shutil.rmtree(workspace)
        for folder in made:
            if any(folder.iterdir()):
                break
            folder.rmdir()
