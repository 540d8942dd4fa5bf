"""The user's cache of converted encoders."""

import os
import pathlib
from collections.abc import Callable

import platformdirs

from bert_flow_tf.encoder.convert.folders import SOURCE_FILE
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.outputs import check_writable


def cache_root(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Folder for what can be made again: `cache_dir`, else the variable BERT_FLOW_CACHE, else the user's cache."""
    return pathlib.Path(cache_dir or os.environ.get("BERT_FLOW_CACHE") or platformdirs.user_cache_dir("bert_flow_tf"))


def cached_encoder(folder: pathlib.Path, build: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """The encoder folder `folder`, after `build(folder)`, which writes it whole or not at all, where it does not exist.

    Two processes may do this at once: each builds, and the folder of the first to finish stays.

    Raises:
      UserError: the cache cannot be written to, or as `build`.
    """

    def is_built() -> bool:
        return (folder / SOURCE_FILE).is_file()

    if not is_built():
        try:
            check_writable(folder)
        except UserError as error:
            raise UserError(f"{error}; set BERT_FLOW_CACHE to another folder") from error
        try:
            build(folder)
        except (UserError, OSError):
            # Another process may have been faster: its folder is as good.
            if not is_built():
                raise
    return folder
