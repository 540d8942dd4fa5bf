"""`bert-flow evaluate`: a model on similarity tasks, by every protocol."""

import click

from bert_flow_tf.commands.options import ModelOptions, Names, model_options
from bert_flow_tf.commands.outputs import write_results
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.outputs import output_file
from bert_flow_tf.results.table import METRIC_NAMES, Table, number

RESULTS_FILE = "evaluation.json"
_PROTOCOLS = ("wmean", "mean", "all")


@click.command()
@model_options()
@click.option("--tasks", "names", type=Names(), required=True, metavar="LIST", help="Tasks, commas between, see above.")
@click.option("--glue_dir", metavar="DIR", help="Folder of the folders STS-B, SICK-R, QNLI-Regression, …")
@click.option("--senteval_dir", metavar="DIR", help="SentEval's folder that holds STS/STS12-en-test and so on.")
@click.option(
    "--split",
    type=click.Choice(["train", "dev", "test"]),
    help="Split of every task.  [default: test; dev for qnli, qqp and tfds, whose test labels are not public]",
)
@click.option("--out", metavar="FILE", help=f"File for the results.  [default: {RESULTS_FILE} in the run's folder]")
@click.option("--overwrite", is_flag=True, help="Replace the results that are there.")
def evaluate(
    model: ModelOptions,
    names: list[str],
    glue_dir: str | None,
    senteval_dir: str | None,
    split: str | None,
    out: str | None,
    overwrite: bool,
) -> None:
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
        path = output_file(out, flag=f"--out={out}", overwrite=overwrite)
    elif model.run_dir is not None:
        path = model.run_dir / RESULTS_FILE
        path = output_file(path, flag=str(path), overwrite=overwrite)
    else:
        path = None
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    import msgspec

    from bert_flow_tf.evaluation.evaluate import evaluate as score
    from bert_flow_tf.results.records import Scores, TaskScores
    from bert_flow_tf.runs.record import made_by

    tasks = _read(names, glue_dir=glue_dir, senteval_dir=senteval_dir, split=split)
    loaded = model.load()
    results = score(lambda sentences: loaded.encode(sentences, show_progress_bar=False), tasks)
    click.echo(scores_table(results).to_text())
    if path:
        scores = msgspec.convert(results, dict[str, TaskScores])
        write_results(path, Scores(made_by=made_by("bert-flow evaluate"), model=loaded.record, tasks=scores))


def scores_table(results: dict[str, dict]) -> Table:
    """A row per task: split, metric, number of pairs, and the score times 100 by each protocol.

    Args:
      results: as `evaluation.evaluate.evaluate` gives them.
    """
    rows = []
    for name, result in results.items():
        combined = result[result["metric"]]
        title = name if name.startswith("tfds:") else result["title"]
        scores = (number(100 * combined[p] if p in combined else None) for p in _PROTOCOLS)
        metric = METRIC_NAMES[result["metric"]]
        rows.append((title, result["split"], metric, number(result["pairs"], 0), *scores))
    note = (
        "Spearman and AUC x100 of the cosine. wmean: mean over sub-sets weighted by size (SentEval, the paper); "
        "mean: plain mean; all: all pairs together."
    )
    return Table(("task", "split", "metric", "pairs", *_PROTOCOLS), rows, notes=(note,))


def _read(names: list[str], **sources: str | None) -> list:
    from bert_flow_tf.data.sts_sets import read_task

    tasks = {}
    for name in names:
        task = read_task(name, **sources)
        if task.name in tasks:
            raise UserError(f"--tasks: {name} names {task.name} once more, expected every task once")
        tasks[task.name] = task
    return list(tasks.values())
