"""Commands that write on a disk that is full: one line, nothing half written, and the same command ends when it is not.

    python -m tests.campaigns.full_disk --limits 20

No file may be larger than a limit, swept for every command from 0 to past the largest file that it writes. A command
must end with status 2 and one line, or as one that nobody limits; run again without a limit it must leave what that one
leaves.
"""

import argparse
import contextlib
import pathlib
import sys

from tests.campaigns.commands import COMMANDS
from tests.campaigns.processes import Run, contents, end, forked, prepared, said, uninterrupted, work


def largest_file(run: Run, start: pathlib.Path) -> int:
    """Bytes of the largest file that the command writes."""
    before = {path.relative_to(start) for path in start.rglob("*")}
    with work(start) as folder:
        end(forked(run, folder))
        paths = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder) not in before]
        return max(path.stat().st_size for path in paths)


def violation(run: Run, start: pathlib.Path, whole: dict[str, str], limit: int) -> str:
    """What the command does wrong with this limit; "" for nothing."""
    with work(start) as folder:
        status = end(forked(run, folder, most_bytes=limit))
        lines = [line for line in said(folder).splitlines() if line.startswith("error: ") or "Traceback" in line]
        if status and (status != 2 or len(lines) != 1 or "Traceback" in lines[0]):
            return f"exit status {status}: {lines}"
        left = [path.name for path in folder.rglob("*") if "bert_flow_" in path.name or path.name.endswith("_temp")]
        if left:
            return f"left {left}"
        if status:
            status = end(forked(run, folder))
            if status:
                return f"then exit status {status}: {said(folder).splitlines()[-1:]}"
        found = contents(folder)
        wrong = [name for name in sorted(found.keys() | whole.keys()) if found.get(name) != whole.get(name)]
        return f"differ: {wrong}" if wrong else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=int, default=10, help="of each command")
    parser.add_argument("--only", nargs="+", choices=sorted(COMMANDS), default=list(COMMANDS))
    arguments = parser.parse_args()
    total = violations = 0
    with prepared() as start:
        for name in arguments.only:
            run = COMMANDS[name]
            whole, _ = uninterrupted(run, start)
            largest = largest_file(run, start)
            for number in range(arguments.limits):
                limit = round((largest + 1) * (number / max(1, arguments.limits - 1)) ** 2)
                wrong = violation(run, start, whole, limit)
                total += 1
                if wrong:
                    violations += 1
                    print(f"{name}, {limit:,} of {largest:,} bytes: {wrong}", flush=True)
    print(f"{total} limits, {violations} violations")
    return int(violations > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
