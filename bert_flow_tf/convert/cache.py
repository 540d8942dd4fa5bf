"""The user's cache of converted encoders."""

import os
import pathlib
import tempfile

import platformdirs

from bert_flow_tf.errors import UserError


def cache_root(cache_dir=None):
    """Folder for what can be made again: `cache_dir`, else the variable BERT_FLOW_CACHE, else the user's cache."""
    return pathlib.Path(cache_dir or os.environ.get("BERT_FLOW_CACHE") or platformdirs.user_cache_dir("bert_flow_tf"))


def cached_encoder(folder, build):
    """`folder`, an encoder folder that `build(path)` makes if it is not there yet.

    Two processes may do this at once: each builds its own and the first to finish gives the folder its name.

    Raises:
      UserError: the cache cannot be written.
    """
    folder = pathlib.Path(folder)
    if (folder / "source.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        workspace = tempfile.TemporaryDirectory(prefix=f".{folder.name[:16]}.", dir=folder.parent)
    except OSError as error:
        raise UserError(
            f"{folder.parent}: cache cannot be written: {error.strerror}; set BERT_FLOW_CACHE to another folder"
        ) from error
    with workspace as path:
        build(pathlib.Path(path) / "new")
        try:
            (pathlib.Path(path) / "new").rename(folder)
        except OSError as error:
            # Another process may have been faster; then its folder is as good.
            if not (folder / "source.json").is_file():
                raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
    return folder
