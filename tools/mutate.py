"""Puts one plausible bug at a time into a copy of the checkout, and asks whether the tests that should catch it do.

    python -m tools.mutate
    python -m tools.mutate --only loss-in-nats,k-chosen-on-test --jobs 2
    python -m tools.mutate --check

The bugs are in `mutations.toml`. First their tests must pass on an unchanged copy. One line for each bug says which
test caught it, or SURVIVED. --check runs no test: it only looks whether each bug's text occurs exactly once, which code
that moves may change. The exit status is 1 if a bug survived or could not be tried. A wrong argument, or a test that
fails without any bug, is one line and status 2.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence

from bert_flow_tf.errors import ArgumentParser, UserError, exit_status

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One bug: `text`, which occurs once in `file`, becomes `replacement`, and one of `tests` must fail.

    Attributes:
      name: what --only calls it.
      file: path below the root.
      tests: files of tests, or tests in them, as pytest takes them; few and quick.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: Sequence[str]

    def obstacle(self, root: pathlib.Path) -> str | None:
        """Why it cannot be tried on the checkout at `root`; None where it can."""
        missing = [path for path in (self.file, *self.tests) if not (root / path.partition("::")[0]).is_file()]
        if missing:
            return f"no file {', '.join(missing)}"
        found = (root / self.file).read_text(encoding="utf-8").count(self.text)
        return None if found == 1 else f"its text occurs {found} times in {self.file}, expected once"


def run_tests(root: pathlib.Path, tests: Iterable[str], mutation: Mutation | None = None) -> tuple[int, str]:
    """Exit status and output of pytest on a copy of the files that git tracks below `root`, with the mutation in it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutate_") as folder:
        copy = pathlib.Path(folder)
        for name in filter(None, listed.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)
        if mutation is not None:
            source = (root / mutation.file).read_text(encoding="utf-8")
            (copy / mutation.file).write_text(source.replace(mutation.text, mutation.replacement), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", *tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    return done.returncode, done.stdout


def failed_test(status: int, output: str) -> str | None:
    """The test that failed, by pytest's summary; None where no test did, say because a file cannot be imported."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+?::[^\s\[]+)", output, re.MULTILINE)
    return found[1] if status == 1 and found else None


def verdict(root: pathlib.Path, mutation: Mutation) -> str:
    """What became of the mutation: `caught by …`, `SURVIVED …` or `not applicable: …`."""
    if obstacle := mutation.obstacle(root):
        return f"not applicable: {obstacle}"
    started = time.monotonic()
    status, output = run_tests(root, mutation.tests, mutation)
    seconds = f"({time.monotonic() - started:.0f} s)"
    if status == 0:
        return f"SURVIVED {' '.join(mutation.tests)} {seconds}"
    if test := failed_test(status, output):
        return f"caught by {test} {seconds}"
    return f"not applicable: pytest ended with status {status} and no failing test\n{output[-2000:]}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = ArgumentParser(
        prog="python -m tools.mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only look whether each bug's text occurs exactly once")
    parser.add_argument("--only", metavar="NAME[,NAME]", help="bugs to try (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="bugs tried at once (default: 1)")
    return parser.parse_args(arguments)


def _run(arguments: Sequence[str] | None, root: pathlib.Path) -> int:
    flags = _parse(arguments)
    if flags.jobs < 1:
        raise UserError(f"--jobs: found {flags.jobs}, expected 1 or more")
    tables = tomllib.loads((root / "tools" / "mutations.toml").read_text(encoding="utf-8"))
    mutations = {name: Mutation(name, **fields) for name, fields in tables.items()}
    names = list(mutations) if flags.only is None else flags.only.split(",")
    for name in names:
        if name not in mutations:
            raise UserError(f"--only: found {name!r}, expected names out of {', '.join(mutations)}")
    chosen = [mutations[name] for name in names]
    if flags.check:
        obstacles = [f"{one.name}: {obstacle}" for one in chosen if (obstacle := one.obstacle(root))]
        print(*obstacles, f"{len(chosen)} mutations, {len(chosen) - len(obstacles)} of them applicable", sep="\n")
        return 1 if obstacles else 0
    status, output = run_tests(root, sorted({test for one in chosen for test in one.tests}))
    if status:
        failed = failed_test(status, output) or output.strip().splitlines()[-1]
        raise UserError(f"{failed}: fails without a bug, expected it to pass")
    found = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        for one, said in zip(chosen, pool.map(lambda one: verdict(root, one), chosen), strict=True):
            print(f"{one.name}: {said}", flush=True)
            found[said.split()[0]] += 1
    caught, survived, others = found["caught"], found["SURVIVED"], found["not"]
    print(f"{len(chosen)} mutations: {caught} caught, {survived} survived, {others} not applicable")
    return 0 if caught == len(chosen) else 1


def main(arguments: Sequence[str] | None = None, root: pathlib.Path = pathlib.Path(__file__).parents[1]) -> int:
    """Exit status of the command line: 0; 1 if a bug was not caught; 2 after one `error:` line."""
    return exit_status(_run, arguments, root)


if __name__ == "__main__":
    sys.exit(main())
