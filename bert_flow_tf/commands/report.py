"""`bert-flow report`: results beside their baselines, the paper's and the original's, on one page."""

import click


@click.command()
@click.option("--runs", "first", required=True, multiple=True, metavar="PATH…", help="Results, see above.")
@click.argument("more", nargs=-1, metavar="")
@click.option("--out", required=True, metavar="FOLDER", help="Folder to make.")
@click.option("--title", default="BERT-flow: results compared", metavar="TEXT", help="Of the page.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier report.")
def report(first: tuple[str, ...], more: tuple[str, ...], out: str, title: str, overwrite: bool) -> None:
    """Compare results with their baselines, the paper's figures and the original code's.

    \b
    bert-flow report --runs runs/stsb_flow evaluations/demo.json isotropy --out report

    A PATH is a run of run_siamese (with evaluation.json of bert-flow evaluate in it, or scored by the recipe), a folder
    of bert-flow reproduce or bert-flow analyze, a file of bert-flow evaluate, calibrate or verify, or a folder that
    holds any of these. Several may follow one --runs.

    FOLDER gets report.html, one page with tables and plots that loads nothing. What is not comparable is left empty.
    """
    from bert_flow_tf.commands.outputs import own_folder
    from bert_flow_tf.report.page import PAGE_FILE, REPORT_FOLDER, write_report
    from bert_flow_tf.results.sources import find_sources

    folder = own_folder(out, REPORT_FOLDER, overwrite=overwrite)
    sources = find_sources([*first, *more])
    write_report(folder, title, sources)
    click.echo(f"report written: {folder / PAGE_FILE}, of {len(sources)} results")
