"""The user's cache: what can be made again, made once, by whichever process comes first."""

import os
import pathlib
import sys
from collections.abc import Callable

import platformdirs

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import check_writable
from bert_flow_tf.files.locks import locked


def cache_root(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Folder for what can be made again: `cache_dir`, else the variable BERT_FLOW_CACHE, else the user's cache."""
    return pathlib.Path(cache_dir or os.environ.get("BERT_FLOW_CACHE") or platformdirs.user_cache_dir("bert_flow_tf"))


def say_download(what: str, size: int | None, place: pathlib.Path) -> None:
    """Says on stderr, in a line, what is downloaded, how many bytes (None: not known), and where it is kept."""
    amount = "of unknown size" if size is None else f"{size / 1e6:.1f} MB"
    print(f"downloading {what}, {amount}, once; kept in {place}", file=sys.stderr, flush=True)


def cached_folder(folder: pathlib.Path, marker: str, build: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """The folder, after `build(folder)`, which writes it whole or not at all, where it holds no file `marker`.

    Of two processes at once the second waits for the first.

    Raises:
      UserError: the cache cannot be written to, or as `build`.
    """

    if not (folder / marker).is_file():
        try:
            check_writable(folder)
        except UserError as error:
            raise UserError(f"{error}; set BERT_FLOW_CACHE to another folder") from error
        with locked(folder, wait=True):
            if not (folder / marker).is_file():
                build(folder)
    return folder
