"""`bert-flow report`: results beside their baselines, the paper's and the original's, on one page."""

import datetime
import os

import click

from bert_flow_tf.errors import UserError


@click.command()
@click.option("--runs", "first", required=True, multiple=True, metavar="PATH…", help="What to report on, see above.")
@click.argument("more", nargs=-1, metavar="")
@click.option("--out", required=True, metavar="FOLDER", help="Folder to make.")
@click.option("--title", default="BERT-flow: results compared", metavar="TEXT", help="Of the page.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier report.")
def report(first: tuple[str, ...], more: tuple[str, ...], out: str, title: str, overwrite: bool) -> None:
    """Compare results with their baselines, the paper's figures and the original code's.

    \b
    bert-flow report --runs runs/stsb_flow evaluations/demo.json isotropy --out report
    bert-flow report --runs runs --runs calibrations.json --out report --overwrite

    A PATH is a run of run_siamese (with evaluation.json of bert-flow evaluate in it, or scored by the recipe), a folder
    of bert-flow reproduce or bert-flow analyze, a file of bert-flow evaluate, calibrate or verify, or a folder that
    holds any of these. Several may follow one --runs.

    FOLDER gets report.html (one page with tables and plots that loads nothing), report.md and results.json. What is not
    comparable is left empty. The same results give the same bytes; SOURCE_DATE_EPOCH adds a date.
    """
    from bert_flow_tf.commands.outputs import own_folder
    from bert_flow_tf.report.page import PAGE_FILE, REPORT_FOLDER, write_report
    from bert_flow_tf.results.collect import analysis_plots, collect
    from bert_flow_tf.results.sources import find_sources
    from bert_flow_tf.results.verdict import Claim, verdict_table

    folder = own_folder(out, REPORT_FOLDER, overwrite=overwrite)
    date = _date(os.environ.get("SOURCE_DATE_EPOCH"))
    sources, left_out = find_sources([*first, *more])
    record = collect(sources, title, date)
    write_report(folder, record, analysis_plots(sources))
    if claims := [Claim(**claim) for claim in record["verdict"]]:
        click.echo(f"{verdict_table(claims).to_text()}\n")
    for source in record["sources"]:
        click.echo(f"{source['kind']}: {source['path']}")
    for path in left_out:
        click.echo(f"left out, no results: {path}")
    click.echo(f"report written: {folder / PAGE_FILE}, {len(record['scores'])} scores")


def _date(seconds: str | None) -> str | None:
    """The day, in UTC, that SOURCE_DATE_EPOCH names; None without one."""
    if not seconds:
        return None
    try:
        return datetime.datetime.fromtimestamp(int(seconds), tz=datetime.timezone.utc).date().isoformat()
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(f"SOURCE_DATE_EPOCH: found {seconds!r}, expected a number of seconds since 1970") from error
