"""SIGKILL at random places of every command that writes, the same command until it ends, and what is there then.

    python -m tests.campaigns.kill --kills 500 --seed 1

A trial kills up to six attempts: before a random write, rename or removal of Python's, at a random change in the
folder, which TensorFlow's own writes are, or some time after one; of a recipe its own process, its worker, or
both; of a launch its own process or one of its workers, after which it goes on. Then the command must end well and
leave the same names with the same contents as a run that nobody interrupted, but for times and the order of a
SavedModel's graph, and no process. A line for each trial says what came of it. The kills that are counted are those of
processes that had not ended.
"""

import argparse
import collections
import contextlib
import pathlib
import random
import re
import signal
import sys
import time
from collections.abc import Sequence

from tests.campaigns.commands import COMMANDS, LAUNCHES, Run
from tests.campaigns.processes import (
    WHOM,
    Forked,
    Uninterrupted,
    Watch,
    are_others_alive,
    contents,
    differing,
    prepared,
    wait_for_others,
    work,
)

_COMMANDS = COMMANDS | LAUNCHES
_KINDS = ("write", "change", "time")
_WITH_WORKER = ("recipe", "effect", "reproduce", "nli_stages")
_RESTARTS = re.compile(r"was ended by signal 9: all workers start again")
_DONE = re.compile(r"found a finished run of these settings|: exists, expected a new (file|folder)")
_IN_USE = re.compile(r"process \d+ on \S+ \(since .+\) is using it")


def kill(run: Run, folder: pathlib.Path, rng: random.Random, kind: str, whom: str, whole: Uninterrupted, n: int) -> str:
    """Runs and kills somewhere, the n-th time; gives where, "" for nowhere: the command had ended."""
    # What is resumed has less to do.
    share = rng.random() ** n
    if kind == "write":
        place = 1 + int(share * whole.writes)
        status = Forked(run, folder, kill_at=place, whom=whom).end()
    else:
        place = 1 + int(share * whole.changes)
        with Watch(folder) as watch:
            process = Forked(run, folder)
            watch.wait(place, process)
            if kind == "time":
                time.sleep(rng.uniform(0, 3 * whole.seconds / whole.changes))
            process.kill(whom)
            status = process.end()
    # A recipe and a launch say so of a worker that was killed.
    if status not in (-signal.SIGKILL, 128 + signal.SIGKILL) and not _RESTARTS.search(process.said()):
        return ""
    return f"{kind} {place}{'' if whom == 'both' else f' of the {whom}'}"


def trial(
    run: Run, start: pathlib.Path, whole: Uninterrupted, rng: random.Random, kinds: Sequence[str], whom: Sequence[str]
) -> tuple[list[str], str]:
    """One trial in a copy of the folder `start`; gives the kills' places and what was violated, "" for nothing."""
    with work(start) as folder:
        places = []
        try:
            for n in range(1, 1 + rng.choice((1, 2, 4, 6))):
                places.append(kill(run, folder, rng, rng.choice(kinds), rng.choice(whom), whole, n))
                if rng.random() < 0.5:
                    wait_for_others()
            places = [place for place in places if place]
            while True:
                is_alone = not are_others_alive()
                process = Forked(run, folder)
                status = process.end()
                if not status or is_alone or not _IN_USE.search(process.said()):
                    break
                # A worker without its recipe ends its stage, whose place is refused to a second one.
                wait_for_others()
            wait_for_others()
        except TimeoutError as error:
            return places, str(error)
        # What was killed after its last write refuses to do it again.
        if status and not (status == 2 and _DONE.search(process.said())):
            return places, f"exit status {status}: {' | '.join(process.said().splitlines()[-2:])}"
        return places, differing(contents(folder), whole.contents)


def main(argv: Sequence[str] | None = None, start: pathlib.Path | None = None) -> int:
    """Exit status of the campaign with these arguments; `start` is a folder that is prepared already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of all commands together, at least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at", nargs="+", choices=_KINDS, default=_KINDS, help="where; `write` alone depends on no clock"
    )
    parser.add_argument("--only", nargs="+", choices=sorted(_COMMANDS), default=list(_COMMANDS))
    arguments = parser.parse_args(argv)
    rng = random.Random(arguments.seed)
    kills, violations = collections.Counter(), collections.Counter()
    began = time.monotonic()
    with prepared(arguments.only) if start is None else contextlib.nullcontext(start) as start:
        measured = {}
        while kills.total() < arguments.kills:
            # The one with the fewest so far, the slower of them less often.
            name = min(arguments.only, key=lambda name: kills[name] and kills[name] * measured[name].seconds ** 0.5)
            if name not in measured:
                measured[name] = Uninterrupted(_COMMANDS[name], start)
            whom, kinds = WHOM if name in _WITH_WORKER else ("both",), arguments.at
            if name in LAUNCHES:
                # What its workers write is not counted here.
                whom, kinds = ("parent", "started", "started"), ("change", "time")
            places, violation = trial(_COMMANDS[name], start, measured[name], rng, kinds, whom)
            kills[name] += len(places)
            violations[name] += bool(violation)
            print(
                f"{time.monotonic() - began:5.0f} s, {kills.total():4} kills, {violations.total()} violations; {name}: "
                f"{', '.join(places) or 'not hit'}{f': VIOLATION: {violation}' if violation else ''}",
                flush=True,
            )
    for name in arguments.only:
        print(f"{name:12} {kills[name]:4} kills {violations[name]:4} violations")
    print(f"{kills.total()} kills, {violations.total()} violations")
    return int(violations.total() > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
