"""`bert-flow verify`: check that this code gives the original's numbers."""

import importlib.util
import json
import logging
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.command import command, option
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.commands.results import check_runs, check_whole, found_results
from bert_flow_tf.common.errors import UserError

if TYPE_CHECKING:
    from bert_flow_tf.report.collected import Verification

logger = logging.getLogger(__name__)

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_GOLDEN = pathlib.Path("tests", "golden")


@command(epilog="\b\nbert-flow verify --runs runs/demo --out verification.json")
@option(
    "--runs", multiple=True, metavar="PATH…", help="Results to compare, as in bert-flow report."
)
@click.argument("more", nargs=-1, metavar="")
@option(
    "--whole_runs",
    metavar="[DIR]",
    is_flag=False,
    flag_value=str(_ROOT / _GOLDEN / "data" / "whole_runs"),
    help="In a clone: replay whole runs of the TF1 code.",
)
@option(
    "--glue_dir",
    metavar="DIR",
    needs=("whole_runs",),
    help="With --whole_runs: folder of STS-B.",
)
@option(
    "--nli_dir",
    metavar="DIR",
    needs=("whole_runs",),
    help="With --whole_runs: folder of MNLI and SNLI.",
)
@option("--out", metavar="FILE", help="JSON file of the checks, for bert-flow report.")
@option("--overwrite", is_flag=True, needs=("out",), help="Replace FILE.")
def verify(
    runs: tuple[str, ...],
    more: tuple[str, ...],
    whole_runs: str | None,
    glue_dir: str | None,
    nli_dir: str | None,
    out: str | None,
    overwrite: bool,
) -> None:
    """Check that this code gives the original's numbers, and print the verdict.

    In a clone of the repository, this recomputes values that the TF1 code computed, in a minute or
    two. With --runs, it also compares scores. With --whole_runs, it trains the models of DIR, by
    default two, from the TF1 code's initial values in its order of pairs, and compares them with
    the TF1 code's. The exit status is 1 if anything differs.

    An installed package has no values of the TF1 code: it compares the scores of --runs, which it
    then needs, and cannot replay whole runs.
    """
    check_runs(runs, more)
    if whole_runs and not glue_dir:
        raise UserError("--glue_dir: missing, expected the folder of STS-B for --whole_runs")
    from bert_flow_tf.report.rows import score_rows
    from bert_flow_tf.report.verdict import DIFFERENT, verdict, verdict_table

    path = None if out is None else locked_file(out, overwrite=overwrite)
    found = found_results([*runs, *more])
    replays = _replayed(whole_runs, glue_dir, nli_dir) if whole_runs and glue_dir else []
    verification = _verification(runs, replays)
    claims = verdict([verification], score_rows(found.sources))
    if not claims:
        check_whole(found.left_out)
        raise UserError(
            "--runs: found no score to compare with the original or the paper, expected one or more"
        )
    click.echo(verdict_table(claims).to_text())
    if path is not None:
        write_results(path, verification)
    check_whole(found.left_out)
    if any(claim.mark == DIFFERENT for claim in claims):
        sys.exit(1)


def _replayed(folder: str, glue_dir: str, nli_dir: str | None) -> list[tuple[str, float, float]]:
    """Replay whole runs and print their table; return their deviations."""
    if not (_ROOT / _GOLDEN / "whole_runs.py").is_file():
        raise UserError(f"{_ROOT}: found no {_GOLDEN}/whole_runs.py, expected a clone")
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary, "deviations.json")
        paths = [os.path.abspath(one) for one in (folder, glue_dir, nli_dir or glue_dir, path)]
        command = [sys.executable, "-m", "tests.golden.whole_runs", *paths]
        # The process itself prints its progress and mistakes.
        done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(done.returncode)
        click.echo(done.stdout)
        return json.loads(path.read_text())


def _verification(
    runs: Sequence[str], replayed: Sequence[tuple[str, float, float]]
) -> "Verification":
    from bert_flow_tf.common.records import made_by
    from bert_flow_tf.report.collected import Checked, Verification

    deviations = list(replayed)
    failed: list[str] = []
    not_run = ["golden values: found only in a clone"]
    if (_ROOT / _GOLDEN).is_dir() and importlib.util.find_spec("pytest") is not None:
        golden = _golden()
        deviations = [*golden["deviations"], *replayed]
        failed = golden["failed"]
        not_run = golden["not_run"]
    elif not runs:
        raise UserError(
            f"{_ROOT}: found no {_GOLDEN} or no pytest, expected a clone with its requirements, or "
            "--runs"
        )
    checked = [
        Checked(what=what, found=value if math.isfinite(value) else None, limit=limit)
        for what, value, limit in deviations
    ]
    return Verification(
        made_by=made_by("bert-flow verify"),
        evidence=str(_GOLDEN),
        deviations=checked,
        failed=failed,
        not_run=not_run,
    )


def _golden() -> dict[str, list]:
    """Run the golden tests; return `deviations`, `failed` and `not_run`."""
    logger.info("running the tests in %s", _GOLDEN)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "deviations.json")
        environment = os.environ | {"BERT_FLOW_DEVIATIONS": str(path), "PYTHONUNBUFFERED": "1"}
        options = ("-v", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=")
        command = [sys.executable, "-B", "-m", "pytest", *options, str(_GOLDEN)]
        lines = []
        out = subprocess.PIPE
        both = subprocess.STDOUT
        with subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=out, stderr=both, text=True
        ) as process:
            for line in process.stdout or ():
                lines.append(line)
                if "::" in line:
                    click.echo(line.rstrip(), err=True)
        found = json.loads(path.read_text()) if path.exists() else {"failed": []}
    if process.returncode and not found["failed"]:
        raise UserError(f"{_ROOT / _GOLDEN}: its tests did not finish: {''.join(lines)[-2000:]}")
    return found
