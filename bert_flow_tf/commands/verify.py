"""`bert-flow report` and `bert-flow verify`."""

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
from bert_flow_tf.commands.outputs import locked_file, say, write_results
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_tables
from bert_flow_tf.common.atomic import new_file
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.report.collected import FoundResults, LeftOut, find_results

if TYPE_CHECKING:
    from bert_flow_tf.report.collected import Verification
    from bert_flow_tf.report.pictures import Pictures
    from bert_flow_tf.report.reports import Report

logger = logging.getLogger(__name__)

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_GOLDEN = pathlib.Path("tests", "golden")


@command(
    epilog="\b\nbert-flow report --runs runs/stsb_flow evaluations/demo.json > report.txt\n"
    "bert-flow report --runs runs --html page.html"
)
@option("--runs", "first", multiple=True, metavar="PATH…", help="Results, see above.")
@click.argument("more", nargs=-1, metavar="")
@option("--literature", is_flag=True, help="Print what later papers report.")
@PLOT
@panels_option("bars", "methods", "spectrum", "losses")
@TABLE_FORMAT
@option("--html", metavar="FILE", help="Write a page with these tables and pictures, too.")
@option("--overwrite", is_flag=True, needs=("html", "plot"), help="Replace files.")
def report(
    first: tuple[str, ...],
    more: tuple[str, ...],
    literature: bool,
    plot: str | None,
    panels: list[str] | None,
    table_format: str,
    html: str | None,
    overwrite: bool,
) -> None:
    """Compare results with baselines, the paper's scores and the original code's.

    PATH is a run of run_siamese with scores, a folder of bert-flow reproduce, a file of bert-flow
    evaluate, compare, isotropy, analyses or verify, or a folder that holds any of these. Several
    may follow one --runs. A line on stderr names each result that is left out; the exit status is 2
    if a file is damaged.
    """
    from bert_flow_tf.report.reports import literature_table, report_of

    _check_more(first, more)
    if not (first or literature):
        raise click.UsageError(
            "found neither --runs nor --literature, expected one of them or both"
        )
    picture = locked_plot(plot, panels, overwrite=overwrite)
    path = None if html is None else locked_file(html, overwrite=overwrite, flag="html")
    runs = [*first, *more]
    found = _found(runs) if first else FoundResults([], [])
    reported = report_of(found.sources)
    tables = [*reported.tables]
    if literature:
        tables.append(literature_table())
    if not tables:
        raise UserError("--runs: found no scores or other figures to report")
    print_tables(tables, table_format)
    left_out = found.left_out
    if path is not None or picture is not None:
        from bert_flow_tf.report.pictures import report_pictures

        drawn = report_pictures(reported.rows, found.sources, runs)
        for one in drawn.left_out:
            say(str(one), err=True)
        left_out = [*left_out, *drawn.left_out]
        if path is not None:
            _write_page(path, reported, drawn.pictures, left_out)
        if picture is not None:
            picture.write(drawn.pictures)
    _check_whole(left_out)


def _write_page(
    path: pathlib.Path, reported: "Report", pictures: "Pictures", left_out: Sequence[LeftOut]
) -> None:
    from bert_flow_tf.report.page import report_page

    page = report_page(reported, pictures, left_out)
    with new_file(path) as new:
        new.write_text(page, encoding="utf-8")
    say(f"page written: {path}", err=True)


def _check_more(first: Sequence[str], more: Sequence[str]) -> None:
    """Raise `click.UsageError` for paths without `--runs` before them."""
    if more and not first:
        raise click.UsageError(f"found the argument {more[0]}, expected --runs before it")


def _check_whole(left_out: Sequence[LeftOut]) -> None:
    """Raise `UserError` after the work if files could not be read."""
    if damaged := [str(one.path) for one in left_out if one.is_damaged]:
        raise UserError(f"left out, because they are damaged: {', '.join(damaged)}")


def _found(runs: Sequence[str]) -> FoundResults:
    """Return the results of `--runs`; say what is left out."""
    found = find_results(runs)
    for one in found.left_out:
        say(str(one), err=True)
    return found


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
    _check_more(runs, more)
    if whole_runs and not glue_dir:
        raise UserError("--glue_dir: missing, expected the folder of STS-B for --whole_runs")
    from bert_flow_tf.report.rows import score_rows
    from bert_flow_tf.report.verdict import DIFFERENT, verdict, verdict_table

    path = None if out is None else locked_file(out, overwrite=overwrite)
    found = _found([*runs, *more]) if runs else FoundResults([], [])
    sources = found.sources
    replays = _replayed(whole_runs, glue_dir, nli_dir) if whole_runs and glue_dir else []
    verification = _verification(runs, replays)
    claims = verdict([verification], score_rows(sources))
    if not claims:
        _check_whole(found.left_out)
        raise UserError(
            "--runs: found no score to compare with the original or the paper, expected one or more"
        )
    click.echo(verdict_table(claims).to_text())
    if path is not None:
        write_results(path, verification)
    _check_whole(found.left_out)
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
