"""`bert-flow calibrate`: every calibration against the same embeddings, the experiment of the paper's Table 5."""

import hashlib
import os
import zipfile

import click

from bert_flow_tf.commands.flow_option import check_flow_config
from bert_flow_tf.commands.model_options import model_options, pooled_embeddings
from bert_flow_tf.commands.results import results_file, versions, write_results
from bert_flow_tf.commands.seeds import parse_seeds
from bert_flow_tf.commands.task_option import require_gold, task_option
from bert_flow_tf.errors import UserError

FORMAT_VERSION = 1

_DEFAULT_FLOW = "config_l3_d3_w32"


@click.command()
@model_options(or_instead="embeddings")
@click.option("--embeddings", metavar="FILE.npy", help="Embeddings made elsewhere instead, see below.")
@task_option("Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--methods", metavar="LIST", help="Calibrations, commas between.  [default: all of them]")
@click.option("--seeds", default="3", show_default=True, metavar="N|LIST", help="Of the flow: 1 to N, or a list: 7,8.")
@click.option(
    "--fit_on", type=click.Choice(["all", "train"]), default="all", show_default=True, help="Splits to fit on."
)
@click.option("--flow_model_config", metavar="NAME|FILE", default=_DEFAULT_FLOW, show_default=True, help="Of the flow.")
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(model, embeddings, task, glue_dir, methods, seeds, fit_on, flow_model_config, out, overwrite):
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
    seeds = parse_seeds(seeds)
    methods = None if methods is None else [name.strip().lower() for name in methods.split(",") if name.strip()]
    path = results_file(out, flag=f"--out={out}", overwrite=overwrite) if out else None
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.evaluation import calibration, compare
    from bert_flow_tf.evaluation.paper import SCORED_PAIRS

    for name in methods or ():
        calibration.check_name(name)
    check_flow_config(flow_model_config)
    examples, gold = _read(task, glue_dir)
    sentences = [s for split in examples.values() for pair in _pairs(split) for s in pair]
    if embeddings:
        matrix = _read_embeddings(embeddings, len(sentences))
        made_by, encoder = None, {"embeddings": embeddings}
    else:
        loaded, made_by = model.load()
        # Not `encode`: a run's flow must not stand between its encoder and the calibrations.
        matrix = pooled_embeddings(loaded, sentences)
        made_by |= {"flow_config": None, "low_dim": -1, "embedding_size": matrix.shape[1]}
        encoder = {
            **made_by["encoder"],
            "run": model.model,
            "encoder_trained": bool(made_by["run"] and made_by["run"]["encoder_trained"]),
            "sentence_embedding_type": made_by["sentence_embedding_type"],
            "max_seq_length": made_by["max_seq_length"],
        }
    if methods is None:
        methods = [name for name in compare.METHODS if name != "whitening-256" or matrix.shape[1] > 256]
    results = compare.compare(
        _splits(matrix, examples, gold),
        metric=task.metric,
        methods=methods,
        fit_on=fit_on,
        seeds=seeds,
        flow_options={"config": flow_model_config},
        on_row=lambda row: click.echo(f"{row['method']}: {row['seconds']:.1f} s", err=True),
    )
    # Table 5 is of STS-B, calibrated on all splits: elsewhere its rows would stand beside something else.
    if (task.name, fit_on, len(examples["test"])) == ("sts-b", "all", SCORED_PAIRS["STS-B", "test"]):
        results = compare.add_paper_rows(results)
    click.echo(compare.format_table(results))
    if any("paper" in row for row in results["rows"]):
        click.echo("paper: Table 5, Spearman x100 of BERT-base, mean of the last layer, fitted on its own target data")
    if path:
        record = {
            "format_version": FORMAT_VERSION,
            "model": made_by,
            "encoder": encoder,
            "data": {
                "task": task.name,
                "glue_dir": str(glue_dir),
                "pairs": {split: len(pairs) for split, pairs in examples.items()},
                "sentences_sha256": hashlib.sha256("\n".join(sentences).encode()).hexdigest(),
            },
            "flow_model_config": flow_model_config,
            **results,
            "versions": versions(),
        }
        write_results(path, record)


def _read(task, glue_dir):
    """Dicts of the pairs of every split and of gold scores of dev and test, which are read first."""
    from bert_flow_tf.evaluation.sts_sets import read_scored_split
    from bert_flow_tf.tasks import read_split

    require_gold(task, ("dev", "test"))
    scored = {split: read_scored_split(task, glue_dir, split, split) for split in ("dev", "test")}
    train = read_split(task, os.path.join(glue_dir, task.directory), "train")
    return {"train": train, **scored}, {split: pairs.gold for split, pairs in scored.items()}


def _pairs(examples):
    return zip(examples.sentences_a, examples.sentences_b, strict=True)


def _read_embeddings(path, rows):
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


def _splits(matrix, examples, gold):
    from bert_flow_tf.evaluation.compare import Split

    splits, start = {}, 0
    for name, pairs in examples.items():
        rows = matrix[start : start + 2 * len(pairs)]
        splits[name] = Split(rows[::2], rows[1::2], gold.get(name))
        start += len(rows)
    return splits
