"""Commands that write on a disk that is full: one line, nothing half written, and the same command ends when it is not.

    python -m tests.campaigns.full_disk --limits 10

A disk is full in two ways: no file may be larger than a limit (RLIMIT_FSIZE), and, where it may be mounted, the folder
is a tmpfs with so many bytes free. Both are swept for every command, in one folder, from 0 to past what it writes. It
must end with status 2 and one line until there is room, and then leave what it leaves where there always is.
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from tests.campaigns.commands import COMMANDS, Run
from tests.campaigns.processes import Forked, Uninterrupted, contents, differing, prepared, work

_PLENTY = 1 << 30
# A file takes whole pages of a tmpfs; seconds may have more digits another time.
_PAGES, _DIGITS = 1 << 16, 64
_LEFT = re.compile(r"bert_flow_(part|lock|lease)|_temp$|\.tempstate|checkpoint\.tmp")
_ERROR = re.compile(r"^error: .*|^Traceback.*", re.MULTILINE)
# A recipe says in a second line that its stage failed.
_STAGE_FAILED = re.compile(r"error: the stage .* failed with exit status 2, see above")


@contextlib.contextmanager
def tmpfs(folder: pathlib.Path) -> Iterator[None]:
    """Mounts a tmpfs there; a `subprocess.CalledProcessError` where that is not permitted."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_PLENTY}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def _leave_free(folder: pathlib.Path, free: int) -> None:
    """Leaves so many bytes free in the tmpfs, as far as its pages can."""
    found = os.statvfs(folder)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    subprocess.run(["mount", "-o", f"remount,size={used + free}", folder], check=True)


def violations(run: Run, start: pathlib.Path, whole: Uninterrupted, limits: int, on_tmpfs: bool) -> Iterator[str]:
    """For each limit that is tried what the command does wrong with it, "" for nothing."""
    most = 2 * whole.bytes_written + _PAGES if on_tmpfs else whole.largest_file + _DIGITS
    status = None
    with work(start, tmpfs if on_tmpfs else contextlib.nullcontext) as folder:
        for number in range(limits):
            limit = round((most + 1) * (number / max(1, limits - 1)) ** 2)
            if on_tmpfs:
                _leave_free(folder, limit)
            process = Forked(run, folder, most_bytes=-1 if on_tmpfs else limit)
            status = process.end()
            if not status:
                if not limit:
                    yield "0 bytes: it ends well, expected it to write"
                break
            lines = [line for line in _ERROR.findall(process.said()) if not _STAGE_FAILED.fullmatch(line)]
            left = [path.name for path in folder.rglob("*") if _LEFT.search(path.name)]
            wrong = []
            if status != 2 or len(lines) != 1 or "Traceback" in lines[0]:
                wrong.append(f"exit status {status}: {lines or process.said().splitlines()[-1:]}")
            if limit > most:
                wrong.append("refused, expected it to end well")
            if left:
                wrong.append(f"left {', '.join(left)}")
            yield f"{limit:,} of {most:,} bytes: {'; '.join(wrong)}" if wrong else ""
        if on_tmpfs:
            _leave_free(folder, _PLENTY)
        if status != 0:
            process = Forked(run, folder)
            status = process.end()
        wrong = f"exit status {status}: {process.said().splitlines()[-1:]}" if status else ""
        yield wrong or differing(contents(folder), whole.contents)


def main(argv: Sequence[str] | None = None, start: pathlib.Path | None = None) -> int:
    """Exit status of the campaign with these arguments; `start` is a folder that is prepared already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=int, default=8, help="of each command and kind of disk")
    parser.add_argument("--only", nargs="+", choices=sorted(COMMANDS), default=list(COMMANDS))
    arguments = parser.parse_args(argv)
    kinds = {"file size": False, "tmpfs": True}
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tmpfs(pathlib.Path(folder)):
                pass
        except subprocess.CalledProcessError as error:
            print(f"no tmpfs: {error.stderr.decode().strip()}")
            del kinds["tmpfs"]
    began = time.monotonic()
    total = violated = 0
    with prepared(arguments.only) if start is None else contextlib.nullcontext(start) as start:
        for name in arguments.only:
            whole = Uninterrupted(COMMANDS[name], start)
            for kind, on_tmpfs in kinds.items():
                found = list(violations(COMMANDS[name], start, whole, arguments.limits, on_tmpfs))
                wrong = list(filter(None, found))
                total, violated = total + len(found), violated + len(wrong)
                print(
                    f"{time.monotonic() - began:5.0f} s, {name}, {kind}: {len(found)} limits, {len(wrong)} violations",
                    *(f"  VIOLATION: {line}" for line in wrong),
                    sep="\n",
                    flush=True,
                )
    print(f"{total} limits, {violated} violations")
    return int(violated > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
