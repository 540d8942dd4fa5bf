"""`bert-flow calibrate`: every calibration against the same embeddings, the experiment of the paper's Table 5."""

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from bert_flow_tf.commands.options import FLOW_OPTION, ModelOptions, model_options, name_list, seed_list, task_option
from bert_flow_tf.commands.outputs import made_result, own_file, write_results
from bert_flow_tf.data.sts_sets import read_scored_split
from bert_flow_tf.data.tasks import read_split
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.compare import check_name
from bert_flow_tf.results.table import METRIC_NAMES, NOT_COMPARABLE, Entry, Table, number, x100

if TYPE_CHECKING:
    import numpy as np

    from bert_flow_tf.data.tasks import Task
    from bert_flow_tf.results.records import Calibrations


@click.command()
@model_options("model", "bert_hub", "embeddings")
@click.option("--embeddings", metavar="FILE.npy|DIR", help="Or embeddings made elsewhere, see above.")
@task_option("Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option(
    "--methods", callback=name_list(), metavar="LIST", help="Calibrations, comma-separated.  [default: all of them]"
)
@click.option(
    "--seeds", callback=seed_list, default="3", metavar="N|LIST", help="Seeds of the flow: 1 to N, or a list: 7,8."
)
@click.option("--fit_on", type=click.Choice(["all", "train"]), default="all", help="Splits to fit on.")
@FLOW_OPTION
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(
    model: ModelOptions,
    embeddings: str | None,
    task: "Task",
    glue_dir: str,
    methods: list[str] | None,
    seeds: list[int],
    fit_on: str,
    flow_model_config: str,
    out: str | None,
    overwrite: bool,
) -> None:
    """Compare calibrations of one encoder's sentence embeddings on a task's test split.

    \b
    bert-flow calibrate --bert_hub demo --sentence_embedding_type cls \\
        --task STS-B --glue_dir glue_data --out calibrations.json

    --methods takes none, sn, natsv-K, natsv, sn+natsv-K, sn+natsv, whitening, whitening-D (D dimensions kept) and flow.
    natsv and sn+natsv choose K among 1 to 20 by the dev split. Without the flag, whitening-256 runs only for wider
    embeddings.

    --embeddings is a matrix of one row per sentence: train, dev, then test, in file order, each pair's two sentences
    after one another; or the folder that `encode --out DIR` wrote of a file of these sentences.
    """
    path = own_file(out, overwrite=overwrite) if out else None
    for name in methods or ():
        check_name(name)
    # Missing gold scores, of dev and test, are found first.
    scored = {split: read_scored_split(task, glue_dir, split, split) for split in ("dev", "test")}
    examples = {"train": read_split(task, os.path.join(glue_dir, task.directory), "train"), **scored}
    sentences = [
        s for one in examples.values() for pair in zip(one.sentences_a, one.sentences_b, strict=True) for s in pair
    ]
    record, matrix = None, _read_embeddings(embeddings, len(sentences)) if embeddings else None
    if matrix is None:
        loaded = model.load()
        # A run's own flow is none of the calibrations.
        matrix = loaded.encode_pooled(sentences)
        record = msgspec.structs.replace(loaded.record, flow=None, low_dim=None)
    from bert_flow_tf.evaluation import compare
    from bert_flow_tf.results.comparisons import table5_row
    from bert_flow_tf.results.records import Calibrations

    if methods is None:
        methods = [name for name in compare.METHODS if name != "whitening-256" or matrix.shape[1] > 256]
    splits, start = {}, 0
    for split, one in examples.items():
        splits[split] = compare.Split(matrix[start : start + 2 * len(one)], getattr(one, "gold", None))
        start += 2 * len(one)
    results = compare.compare_calibrations(
        splits,
        metric=task.metric,
        methods=methods,
        fit_on=fit_on,
        seeds=seeds,
        flow_options={"config": flow_model_config},
        on_row=lambda row: click.echo(f"{row['method']}: {row['seconds']:.1f} s", err=True),
    )
    data = {
        "task": task.name,
        "glue_dir": str(glue_dir),
        "pairs": {split: len(one) for split, one in examples.items()},
        "sentences_sha256": hashlib.sha256("\n".join(sentences).encode()).hexdigest(),
    }
    measured = {"model": record, "embeddings": embeddings, "data": data, "flow_model_config": flow_model_config}
    calibrations = made_result(Calibrations, "calibrate", **measured, **results)
    paper = {row.method: found for row in calibrations.rows if (found := table5_row(calibrations, row.method))}
    click.echo(calibrations_table(calibrations, paper).to_text(missing=""))
    if paper:
        click.echo("paper: Table 5, Spearman x100 of BERT-base, mean of the last layer, fitted on its own target data")
    if path:
        write_results(path, calibrations)


def calibrations_table(result: "Calibrations", paper: Mapping[str, dict]) -> Table:
    """Return a row per calibration, scores times 100, beside Table 5's rows by method, where there are any."""
    from bert_flow_tf.results.comparisons import is_of_table5

    names = ["auc"] if result.metric == "auc" else ["spearman", "pearson"]
    note = "" if is_of_table5(result.model) else NOT_COMPARABLE
    rows = []
    for row in result.rows:
        cells: list[Entry] = [row.method, *(x100(getattr(row, name)) for name in names), number(row.k, 0)]
        cells += [x100(row.dev), x100(row.std), number(row.seconds, 1)]
        if theirs := paper.get(row.method):
            cells += [number(theirs["mean_x100"], note=note), theirs["row"]]
        rows.append(cells + [None, ""] * (bool(paper) and not theirs))
    columns = ["calibration", *(METRIC_NAMES[name] for name in names), "k", "dev", "std", "seconds"]
    return Table([*columns, *(["paper", "its row"] if paper else [])], rows)


def _read_embeddings(path: str, rows: int) -> "np.ndarray":
    import numpy as np

    from bert_flow_tf.files.reading import reading
    from bert_flow_tf.scale.parts import Parts

    name, expected = f"--embeddings={path}", f"a matrix of floating-point numbers of the task's {rows} sentences"
    with reading(name, expected):
        matrix = Parts(path).matrix() if os.path.isdir(path) else np.load(path)
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.floating) or len(matrix) != rows:
        raise UserError(f"{name}: found {matrix.dtype} {matrix.shape}, expected {expected}")
    return matrix
