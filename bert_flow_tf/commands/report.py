"""`bert-flow report`: compare results with the paper, in tables."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.command import command, option
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.commands.results import check_runs, check_whole, found_results
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_tables
from bert_flow_tf.common.atomic import write_atomically
from bert_flow_tf.common.errors import UserError

if TYPE_CHECKING:
    from bert_flow_tf.report.collected import LeftOut
    from bert_flow_tf.report.pictures import Pictures
    from bert_flow_tf.report.reports import Report


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

    check_runs(first, more)
    if not (first or literature):
        raise click.UsageError(
            "found neither --runs nor --literature, expected one of them or both"
        )
    picture = locked_plot(plot, panels, overwrite=overwrite)
    path = None if html is None else locked_file(html, overwrite=overwrite, flag="html")
    runs = [*first, *more]
    found = found_results(runs)
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
    check_whole(left_out)


def _write_page(
    path: pathlib.Path, reported: "Report", pictures: "Pictures", left_out: "Sequence[LeftOut]"
) -> None:
    from bert_flow_tf.report.page import report_page

    write_atomically(path, report_page(reported, pictures, left_out))
    say(f"page written: {path}", err=True)
