"""`bert-flow report`: results beside their baselines, the paper's and the original's, on one page."""

import os
import pathlib

import click


@click.command()
@click.option("--runs", "first", required=True, multiple=True, metavar="PATH…", help="What to report on, see above.")
@click.argument("more", nargs=-1, metavar="")
@click.option("--out", required=True, metavar="FOLDER", help="Folder to make.")
@click.option("--title", default="BERT-flow: results compared", show_default=True, metavar="TEXT", help="Of the page.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier report.")
def report(first, more, out, title, overwrite):
    """Compare results with their baselines, the paper's figures and the original code's.

    \b
    bert-flow report --runs runs/stsb_flow evaluations/demo.json isotropy --out report
    bert-flow report --runs runs --runs calibrations.json --out report --overwrite

    A PATH is a run of run_siamese (with evaluation.json of bert-flow evaluate in it, or scored by the recipe), a folder
    of bert-flow reproduce or bert-flow analyze, a file of bert-flow evaluate or bert-flow calibrate, or a folder that
    holds any of these. Several may follow one --runs.

    FOLDER gets report.html (one page with tables and plots that loads nothing), report.md and results.json. What is not
    comparable is left empty. The same results give the same bytes; SOURCE_DATE_EPOCH adds a date.
    """
    from bert_flow_tf.evaluation import report as reports
    from bert_flow_tf.evaluation.report_sources import find_sources

    folder = pathlib.Path(out)
    reports.check_out(folder, overwrite)
    date = reports.date_of_epoch(os.environ.get("SOURCE_DATE_EPOCH"))
    sources, left_out = find_sources([*first, *more])
    record = reports.collect(sources, title, date)
    reports.write_report(folder, record, reports.drawings(record, sources))
    for source in record["sources"]:
        click.echo(f"{source['kind']}: {source['path']}")
    for path in left_out:
        click.echo(f"left out, no results: {path}")
    click.echo(f"report written: {folder / reports.PAGE_FILE}, {len(record['scores'])} scores")
