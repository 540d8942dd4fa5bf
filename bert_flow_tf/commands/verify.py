"""`bert-flow report` and `bert-flow verify`."""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from absl import logging

import bert_flow_tf
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.errors import UserError
from bert_flow_tf.results.records import find_sources

if TYPE_CHECKING:
    from bert_flow_tf.results.records import Verification

_ROOT = pathlib.Path(bert_flow_tf.__file__).resolve().parents[1]
_GOLDEN = pathlib.Path("tests", "golden")


@click.command(epilog="\b\nbert-flow report --runs runs/stsb_flow evaluations/demo.json isotropy.json > report.txt")
@click.option("--runs", "first", required=True, multiple=True, metavar="PATH…", help="Results, see above.")
@click.argument("more", nargs=-1, metavar="")
def report(first: tuple[str, ...], more: tuple[str, ...]) -> None:
    """Compare results with baselines, the paper's scores and the original code's.

    PATH is a run of run_siamese with scores, a folder of bert-flow reproduce, a file of bert-flow evaluate, compare,
    isotropy or verify, or a folder that holds any of these. Several may follow one --runs.
    """
    from bert_flow_tf.results.tables import report_tables

    click.echo("\n\n".join(table.to_text() for table in report_tables(find_sources([*first, *more]))))


@click.command(epilog="\b\nbert-flow verify --runs runs/demo --out verification.json")
@click.option("--runs", multiple=True, metavar="PATH…", help="Results to compare, as in bert-flow report.")
@click.argument("more", nargs=-1, metavar="")
@click.option("--out", metavar="FILE", help="JSON file of the checks, for bert-flow report.")
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
def verify(runs: tuple[str, ...], more: tuple[str, ...], out: str | None, overwrite: bool) -> None:
    """Check that this code gives the original's numbers, and print the verdict.

    In a clone of the repository, this recomputes values that the TF1 code computed, in a minute or two. With --runs, it
    also compares scores. The exit status is 1 if anything differs.
    """
    if more and not runs:
        raise UserError(f"bert-flow verify: found the argument {more[0]}, expected --runs before it")
    from bert_flow_tf.results.rows import score_rows
    from bert_flow_tf.results.verdict import DIFFERENT, verdict, verdict_table

    path = None if out is None else locked_file(out, overwrite=overwrite)
    sources = find_sources([*runs, *more]) if runs else []
    verification = _verification(runs)
    claims = verdict([verification], score_rows(sources))
    if not claims:
        raise UserError("--runs: found no score to compare with the original or the paper, expected one or more")
    click.echo(verdict_table(claims).to_text())
    if path is not None:
        write_results(path, verification)
    if any(claim.mark == DIFFERENT for claim in claims):
        sys.exit(1)


def _verification(runs: Sequence[str]) -> "Verification":
    from bert_flow_tf.results.records import Checked, Verification
    from bert_flow_tf.runs.record import made_by

    found: dict[str, Any] = {"deviations": [], "failed": [], "not_run": ["golden values: found only in a clone"]}
    if (_ROOT / _GOLDEN).is_dir() and importlib.util.find_spec("pytest") is not None:
        found = _golden()
    elif not runs:
        raise UserError(f"{_ROOT}: found no {_GOLDEN} or no pytest, expected a clone with its requirements, or --runs")
    finite = ((what, value if math.isfinite(value) else None, limit) for what, value, limit in found.pop("deviations"))
    checked = [Checked(what=what, found=value, limit=limit) for what, value, limit in finite]
    return Verification(made_by=made_by("bert-flow verify"), evidence=str(_GOLDEN), deviations=checked, **found)


def _golden() -> dict:
    """Run the golden tests; return `deviations`, `failed` and `not_run`."""
    logging.info("running the tests in %s", _GOLDEN)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "deviations.json")
        environment = os.environ | {"BERT_FLOW_DEVIATIONS": str(path), "PYTHONUNBUFFERED": "1"}
        options = ("-v", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=")
        command, lines = [sys.executable, "-B", "-m", "pytest", *options, str(_GOLDEN)], []
        out, both = subprocess.PIPE, subprocess.STDOUT
        with subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=out, stderr=both, text=True) as process:
            for line in process.stdout or ():
                lines.append(line)
                if "::" in line:
                    click.echo(line.rstrip(), err=True)
        found = json.loads(path.read_text()) if path.exists() else {"failed": []}
    if process.returncode and not found["failed"]:
        raise UserError(f"{_ROOT / _GOLDEN}: its tests did not finish: {''.join(lines)[-2000:]}")
    return found
