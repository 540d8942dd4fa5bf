"""Two commands at once in one folder or cache: each does what it does alone, or one line refuses it.

    python -m tests.campaigns.together --times 20 --seed 1

The second begins some time after the first, in either order. Each must end well, or with status 2 and one line that
names the other process or that it also prints when the other has ended. Run again, those that were refused must end as
they do after the other; then the same names must be there with the same contents as after the two in one of the orders.
"""

import argparse
import collections
import contextlib
import dataclasses
import pathlib
import random
import re
import sys
import time
from collections.abc import Sequence

from tests.campaigns.commands import MEETING
from tests.campaigns.processes import Forked, contents, differing, prepared, work

_PAIRS = (
    *(("flow", "flow"), ("flow", "other_settings"), ("flow", "predict_run"), ("flow", "report")),
    *(("flow", "export_run"), ("overwrite", "encode_old"), ("predict", "predict"), ("predict", "evaluate")),
    *(("evaluate", "evaluate"), ("cached", "cached_too"), ("trio", "trio_too"), ("recipe", "recipe")),
    *(("reproduce", "reproduce"), ("fit", "fit"), ("fit", "encode_fitted"), ("encode", "encode")),
    *(("parquet", "parquet"), ("project", "project"), ("convert", "convert"), ("to_tf1", "to_tf1")),
    *(("export", "export"), ("export", "export_next"), ("calibrate", "calibrate"), ("lexical", "lexical")),
    *(("prepare", "prepare"), ("report", "report"), ("pretrain", "pretrain"), ("bulk", "bulk")),
)
PAIRS = {f"{first}+{second}": (first, second) for first, second in _PAIRS}
# What it reports on may be there in part, and it may replace what it wrote.
_AGAIN = "report"
_PAGE = re.compile(r"old/report/report\.(html|md)")
_IN_USE = re.compile(r": process (\d+) on \S+ \(since .+\) is using it")
_ERROR = re.compile(r"^(error: |Traceback)", re.MULTILINE)
# What is said of a run that another process has begun to train, or to remove.
_UNFINISHED = re.compile(
    r"a run whose training has not finished|a run without results|neither a folder nor|replaced or removed it while"
)


@dataclasses.dataclass
class Ended:
    """How a command ended: its status, and its last line where that is not 0."""

    status: int
    line: str = ""

    @classmethod
    def of(cls, process: Forked) -> "Ended":
        status = process.end()
        return cls(status, (process.said().splitlines() or [""])[-1] if status else "")


def _left(folder: pathlib.Path) -> dict[str, str]:
    """As `contents`, without a report's pages, which show the seconds of a training; its `results.json` stays."""
    return {name: digest for name, digest in contents(folder).items() if not _PAGE.fullmatch(name)}


class OneAfterTheOther:
    """How two commands end that are run in both orders, what they leave, and the seconds of both together."""

    def __init__(self, names: Sequence[str], start: pathlib.Path) -> None:
        self.ended: dict[str, list[Ended]] = collections.defaultdict(list)
        self.left = []
        began = time.monotonic()
        orders = {tuple(names), tuple(reversed(names))}
        for order in orders:
            with work(start) as folder:
                for name in order:
                    self.ended[name].append(Ended.of(Forked(MEETING[name], folder)))
                self.left.append(_left(folder))
        self.seconds = (time.monotonic() - began) / len(orders)


def trial(
    names: Sequence[str], start: pathlib.Path, alone: OneAfterTheOther, rng: random.Random
) -> tuple[list[int], str]:
    """The statuses of the two, and what was violated, "" for nothing."""
    names = rng.sample(names, 2)
    with work(start) as folder:
        first = Forked(MEETING[names[0]], folder)
        time.sleep(rng.choice((0, rng.uniform(0, alone.seconds / 2))))
        second = Forked(MEETING[names[1]], folder)
        processes = {first: second, second: first}
        try:
            ended = {process: Ended.of(process) for process in processes}
        except TimeoutError as error:
            second.kill("both")
            return [], str(error)
        statuses = [one.status for one in ended.values()]
        again = []
        for name, (process, one) in zip(names, ended.items(), strict=True):
            if one.status:
                in_use = _IN_USE.search(one.line)
                if len(_ERROR.findall(process.said())) != (2 if "failed with exit status" in one.line else 1):
                    return statuses, f"{name}: {process.said().splitlines()[-3:]}"
                names_other = in_use and int(in_use[1]) == processes[process].pid
                if one.status != 2 or not (names_other or one in alone.ended[name] or _UNFINISHED.search(one.line)):
                    return statuses, f"{name}: exit status {one.status}: {one.line}"
            if one.status or (name == _AGAIN and names[0] != names[1]):
                again.append(name)
        for name in again:
            one = Ended.of(Forked(MEETING[name], folder))
            if one.status and one not in alone.ended[name]:
                return statuses, f"{name}, run again: exit status {one.status}: {one.line}"
        found = _left(folder)
    return statuses, min((differing(found, left) for left in alone.left), key=len)


def main(argv: Sequence[str] | None = None, start: pathlib.Path | None = None) -> int:
    """Exit status of the campaign with these arguments; `start` is a folder that is prepared already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="of each pair")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PAIRS, default=list(PAIRS), metavar="PAIR")
    arguments = parser.parse_args(argv)
    rng = random.Random(arguments.seed)
    began = time.monotonic()
    total = violated = 0
    names = {name for pair in arguments.only for name in PAIRS[pair]}
    with prepared(names) if start is None else contextlib.nullcontext(start) as start:
        for pair in arguments.only:
            alone = OneAfterTheOther(PAIRS[pair], start)
            trials = [trial(PAIRS[pair], start, alone, rng) for _ in range(arguments.times)]
            both = sum(statuses == [0, 0] for statuses, _ in trials)
            wrong = [violation for _, violation in trials if violation]
            total, violated = total + len(trials), violated + len(wrong)
            print(
                f"{time.monotonic() - began:5.0f} s, {pair}: {len(trials)} times, both ended well {both} times, "
                f"{len(wrong)} violations",
                *(f"  VIOLATION: {line}" for line in wrong),
                sep="\n",
                flush=True,
            )
    print(f"{total} times two at once, {violated} violations")
    return int(violated > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
