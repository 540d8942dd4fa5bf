"""`bert-flow evaluate`: a run, or an encoder as it is, on similarity tasks, by every protocol."""

import click

from bert_flow_tf.commands.model_options import model_options
from bert_flow_tf.commands.results import results_file, versions, write_results
from bert_flow_tf.errors import UserError

RESULTS_FILE = "evaluation.json"
FORMAT_VERSION = 1

_METRIC_NAMES = {"spearman": "Spearman", "auc": "AUC"}
_COLUMNS = ("task", "split", "metric", "pairs", "wmean", "mean", "all")


@click.command()
@model_options()
@click.option("--tasks", "names", required=True, metavar="LIST", help="Tasks, commas between, see above.")
@click.option("--glue_dir", metavar="DIR", help="Folder of the folders STS-B, SICK-R, QNLI-Regression, …")
@click.option("--senteval_dir", metavar="DIR", help="SentEval's folder that holds STS/STS12-en-test and so on.")
@click.option(
    "--split",
    type=click.Choice(["train", "dev", "test"]),
    help="Split of every task.  [default: test; dev for qnli, qqp and tfds, whose test labels are not public]",
)
@click.option("--out", metavar="FILE", help=f"File for the results.  [default: {RESULTS_FILE} in the run's folder]")
@click.option("--overwrite", is_flag=True, help="Replace the results that are there.")
def evaluate(model, names, glue_dir, senteval_dir, split, out, overwrite):
    """Score sentence embeddings on similarity tasks: Spearman, or AUC for two labels, times 100.

    \b
    bert-flow evaluate --model runs/stsb_flow --tasks sts12,sts13,stsb,sickr \\
        --glue_dir glue_data --senteval_dir SentEval/data
    bert-flow evaluate --bert_hub demo --tasks tfds:glue/stsb --out demo.json

    Tasks are sts12 to sts16, stsb, sickr, mrpc, qnli and qqp, and from TensorFlow Datasets tfds:glue/stsb,
    tfds:glue/mrpc, tfds:glue/qnli and tfds:glue/qqp. STS-12 to STS-16 are several sets each: wmean is the mean over
    them weighted by size (SentEval's, the paper's), mean the plain one, all the correlation of all pairs together.

    Without --model and --out the table is all that is written. Pearson's correlations and every sub-set are in the
    file.
    """
    if out is not None:
        path = results_file(out, flag=f"--out={out}", overwrite=overwrite)
    elif model.run_dir is not None:
        path = model.run_dir / RESULTS_FILE
        path = results_file(path, flag=str(path), overwrite=overwrite)
    else:
        path = None
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.evaluation.evaluate import embed_tasks, score_tasks
    from bert_flow_tf.evaluation.protocols import PROTOCOLS

    tasks = _read(names, glue_dir=glue_dir, senteval_dir=senteval_dir, split=split)
    loaded, made_by = model.load()
    embeddings = embed_tasks(lambda sentences: loaded.encode(sentences, show_progress_bar=False), tasks)
    results = score_tasks(tasks, embeddings)
    click.echo(format_table(results))
    if path:
        record = {
            "format_version": FORMAT_VERSION,
            "similarity": "cosine",
            "protocols": dict(PROTOCOLS),
            "tasks": results,
            "distinct_sentences": len(embeddings),
            "model": made_by,
            "versions": versions(),
        }
        write_results(path, record)


def format_table(results) -> str:
    """One line a task: split, metric, number of pairs, and the figure times 100 by each protocol.

    Args:
      results: dict as `evaluation.evaluate.score_tasks` gives.
    """
    from bert_flow_tf.evaluation.text_table import aligned

    rows = [_COLUMNS]
    for name, result in results.items():
        combined = result[result["metric"]]
        figures = [f"{100 * combined[p]:.2f}" if p in combined else "-" for p in ("wmean", "mean", "all")]
        title = name if name.startswith("tfds:") else result["title"]
        rows.append((title, result["split"], _METRIC_NAMES[result["metric"]], str(result["pairs"]), *figures))
    return (
        f"{aligned(rows, left=(0, 1, 2))}\n"
        "Spearman and AUC x100 of the cosine. wmean: mean over sub-sets weighted by size (SentEval, the paper); "
        "mean: plain mean; all: all pairs together."
    )


def _read(names, **sources):
    from bert_flow_tf.evaluation.sts_sets import read_task

    names = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not names:
        raise UserError("--tasks: found none, expected some, commas between")
    tasks = {}
    for name in names:
        task = read_task(name, **sources)
        if task.name in tasks:
            raise UserError(f"--tasks: {name} names {task.name} once more, expected every task once")
        tasks[task.name] = task
    return list(tasks.values())
