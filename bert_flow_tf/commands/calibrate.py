"""`bert-flow calibrate`: every calibration against the same embeddings, the experiment of the paper's Table 5."""

import hashlib
import os
import zipfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.commands.options import FlowConfigName, ModelOptions, Seeds, model_options, require_gold, task_option
from bert_flow_tf.commands.outputs import pooled_embeddings, write_results
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.outputs import output_file
from bert_flow_tf.results.table import METRIC_NAMES, Table, number
from glow.config import DEFAULT_CONFIG

if TYPE_CHECKING:
    import numpy as np

    from bert_flow_tf.data.tasks import Task
    from bert_flow_tf.evaluation.compare import Split


@click.command()
@model_options(or_instead="embeddings")
@click.option("--embeddings", metavar="FILE.npy", help="Embeddings made elsewhere instead, see below.")
@task_option("Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--methods", metavar="LIST", help="Calibrations, commas between.  [default: all of them]")
@click.option(
    "--seeds",
    type=Seeds(),
    default="3",
    show_default=True,
    metavar="N|LIST",
    help="Of the flow: 1 to N, or a list: 7,8.",
)
@click.option(
    "--fit_on", type=click.Choice(["all", "train"]), default="all", show_default=True, help="Splits to fit on."
)
@click.option(
    "--flow_model_config",
    type=FlowConfigName(),
    metavar="NAME|FILE",
    default=DEFAULT_CONFIG,
    show_default=True,
    help="Of the flow.",
)
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(
    model: ModelOptions,
    embeddings: str | None,
    task: "Task",
    glue_dir: str,
    methods: str | None,
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

    --embeddings is a matrix of one row a sentence: train, dev, then test, in file order, each pair's two sentences
    after one another.
    """
    names = None if methods is None else [name.strip().lower() for name in methods.split(",") if name.strip()]
    path = output_file(out, flag=f"--out={out}", overwrite=overwrite) if out else None
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    import msgspec

    from bert_flow_tf.evaluation import calibration, compare
    from bert_flow_tf.results.comparisons import table5_row
    from bert_flow_tf.results.records import Calibrations
    from bert_flow_tf.runs.record import made_by

    for name in names or ():
        calibration.check_name(name)
    examples, gold = _read(task, glue_dir)
    sentences = [s for split in examples.values() for pair in _pairs(split) for s in pair]
    if embeddings:
        record, matrix = None, _read_embeddings(embeddings, len(sentences))
    else:
        loaded = model.load()
        # Not `encode`: a run's flow must not stand between its encoder and the calibrations.
        matrix = pooled_embeddings(loaded, sentences)
        record = msgspec.structs.replace(loaded.record, flow=None, low_dim=None)
    if names is None:
        names = [name for name in compare.METHODS if name != "whitening-256" or matrix.shape[1] > 256]
    results = compare.compare(
        _splits(matrix, examples, gold),
        metric=task.metric,
        methods=names,
        fit_on=fit_on,
        seeds=seeds,
        flow_options={"config": flow_model_config},
        on_row=lambda row: click.echo(f"{row['method']}: {row['seconds']:.1f} s", err=True),
    )
    pairs = {split: len(one) for split, one in examples.items()}
    paper = [table5_row(row["method"], task.name, fit_on, pairs["test"], flow_model_config) for row in results["rows"]]
    click.echo(scores_table(results, paper).to_text(missing=""))
    if any(paper):
        click.echo("paper: Table 5, Spearman x100 of BERT-base, mean of the last layer, fitted on its own target data")
    if path:
        digest = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
        data = {"task": task.name, "glue_dir": str(glue_dir), "pairs": pairs, "sentences_sha256": digest}
        measured = {"data": data, "flow_model_config": flow_model_config, "embeddings": embeddings, **results}
        written = {"kind": "calibrations", "made_by": made_by("bert-flow calibrate"), "model": record, **measured}
        write_results(path, msgspec.convert(msgspec.to_builtins(written), Calibrations))


def scores_table(results: dict, paper: Sequence[dict | None]) -> Table:
    """A row per calibration, scores times 100; Table 5's rows beside, where there are any.

    Args:
      results: as `evaluation.compare.compare` gives them.
      paper: Table 5's row beside each, as `results.comparisons.table5_row` gives it.
    """
    names = ["auc"] if results["metric"] == "auc" else ["spearman", "pearson"]
    rows = []
    for row, theirs in zip(results["rows"], paper, strict=True):
        x100 = {key: 100 * row[key] for key in (*names, "dev", "std") if row.get(key) is not None}
        cells = [row["method"], *(number(x100[name]) for name in names), number(row.get("k"), 0)]
        cells += [number(x100.get("dev")), number(x100.get("std")), number(row["seconds"], 1)]
        if any(paper):
            cells += [number(theirs["mean_x100"]), theirs["row"]] if theirs else [None, ""]
        rows.append(cells)
    columns = ["calibration", *(METRIC_NAMES[name] for name in names), "k", "dev", "std", "seconds"]
    return Table([*columns, *(["paper", "its row"] if any(paper) else [])], rows)


def _read(task: "Task", glue_dir: str) -> tuple[dict[str, Any], dict[str, "np.ndarray"]]:
    """Dicts of the pairs of every split and of gold scores of dev and test, which are read first."""
    from bert_flow_tf.data.sts_sets import read_scored_split
    from bert_flow_tf.data.tasks import read_split

    require_gold(task, ("dev", "test"))
    scored = {split: read_scored_split(task, glue_dir, split, split) for split in ("dev", "test")}
    train = read_split(task, os.path.join(glue_dir, task.directory), "train")
    return {"train": train, **scored}, {split: pairs.gold for split, pairs in scored.items()}


def _pairs(examples: Any) -> Iterable[tuple[str, str]]:
    return zip(examples.sentences_a, examples.sentences_b, strict=True)


def _read_embeddings(path: str, rows: int) -> "np.ndarray":
    import numpy as np

    from bert_flow_tf.evaluation.calibration import check_finite

    try:
        matrix = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"--embeddings={path}: no such file") from None
    except OSError as error:
        raise UserError(f"--embeddings={path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"--embeddings={path}: not a .npy file of numbers ({error})") from error
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.floating):
        found = f"{matrix.dtype} {matrix.shape}" if isinstance(matrix, np.ndarray) else "several arrays"
        raise UserError(f"--embeddings={path}: found {found}, expected one matrix of floating-point numbers")
    if len(matrix) != rows:
        raise UserError(f"--embeddings={path}: found {len(matrix)} rows, expected the task's {rows} sentences")
    check_finite(matrix, f"--embeddings={path}")
    return matrix


def _splits(matrix: "np.ndarray", examples: dict[str, Any], gold: dict[str, "np.ndarray"]) -> dict[str, "Split"]:
    from bert_flow_tf.evaluation.compare import Split

    splits, start = {}, 0
    for name, pairs in examples.items():
        rows = matrix[start : start + 2 * len(pairs)]
        splits[name] = Split(rows[::2], rows[1::2], gold.get(name))
        start += len(rows)
    return splits
