"""SIGKILL at random places of every command that writes, the same command until it ends, and what is there then.

    python -m tests.campaigns.kill --trials 500 --seed 1

A trial kills at a random time, before a random write, rename or removal of Python's, or at a random change in the
folder, which TensorFlow's own writes are; half of the second attempts are killed too. Then the command must end well
and leave the same names with the same contents as a run that nobody interrupted, but for times and the order of a
SavedModel's graph. A command runs in a process forked from this one, which has imported TensorFlow and not used it.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from tests.campaigns.commands import COMMANDS
from tests.campaigns.processes import Run, contents, end, forked, prepared, said, uninterrupted, work

_KINDS = ("time", "write", "change")
_DONE = re.compile(r"found a finished run of these settings|: exists, expected a new (file|folder)")


def kill(run: Run, folder: pathlib.Path, rng: random.Random, kinds: Sequence[str], seconds: float, writes: int) -> str:
    """Runs and kills somewhere; gives where, "" for nowhere: the command had ended."""
    kind = rng.choice(kinds)
    if kind == "write":
        at = rng.randint(1, writes)
        status = end(forked(run, folder, kill_at=at))
        return f"write {at} of {writes}" if status == -signal.SIGKILL else ""
    pid = forked(run, folder)
    if kind == "time":
        place = rng.uniform(0, seconds)
        time.sleep(place)
    else:
        place = rng.randint(1, 60)
        last, left, until = None, place, time.monotonic() + 2 * seconds
        while left and time.monotonic() < until:
            now = {(name, len(files)) for name, _, files in os.walk(folder)}
            left, last = left - (now != last), now
    os.kill(pid, signal.SIGKILL)
    return f"{kind} {place:.2f}" if end(pid) == -signal.SIGKILL else ""


def trial(
    run: Run,
    start: pathlib.Path,
    whole: Mapping[str, str],
    rng: random.Random,
    kinds: Sequence[str],
    cost: tuple[float, int],
) -> tuple[int, str]:
    """One trial in a copy of the folder `start`; gives the number of kills and what was violated, "" for nothing."""
    with work(start) as folder:
        attempts = [kill(run, folder, rng, kinds, *cost) for _ in range(rng.choice((1, 2)))]
        places = [place for place in attempts if place]
        status = end(forked(run, folder))
        line = (said(folder).splitlines() or [""])[-1]
        # What was killed after its last write refuses to do it again.
        if status and not (status == 2 and _DONE.search(line)):
            return len(places), f"{', '.join(places)}: exit status {status}: {line}"
        found = contents(folder)
        wrong = [name for name in sorted(found.keys() | whole.keys()) if found.get(name) != whole.get(name)]
        return len(places), f"{', '.join(places)}: differ: {', '.join(wrong)}" if wrong else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50, help="of all commands together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at", nargs="+", choices=_KINDS, default=_KINDS, help="where; `write` alone depends on no clock"
    )
    parser.add_argument("--only", nargs="+", choices=sorted(COMMANDS), default=list(COMMANDS))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    kills, violations = collections.Counter(), collections.Counter()
    with prepared() as start:
        measured = {}
        for number in range(arguments.trials):
            name = arguments.only[number % len(arguments.only)]
            if name not in measured:
                measured[name] = uninterrupted(COMMANDS[name], start)
            whole, cost = measured[name]
            killed, violation = trial(COMMANDS[name], start, whole, rng, arguments.at, cost)
            kills[name] += killed
            if violation:
                violations[name] += 1
                print(f"{name}: {violation}", flush=True)
    for name in arguments.only:
        print(f"{name:12} {kills[name]:4} kills {violations[name]:4} violations")
    print(f"{arguments.trials} trials, {kills.total()} kills, {violations.total()} violations")
    return int(violations.total() > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
