"""`bert-flow calibrate`: every calibration against the same embeddings, the experiment of the paper's Table 5."""

import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform

import click

from bert_flow_tf.errors import UserError

_LIBRARIES = ("bert-flow-tf", "numpy", "scikit-learn", "scipy", "tensorflow", "tensorflow-probability")
_SPLITS = ("train", "dev", "test")


@click.command()
@click.option("--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, large, a TF-Hub handle or a folder.")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub, where it does not tell.")
@click.option("--model", metavar="RUN", help="Run of run_siamese instead: its encoder's embeddings, before its flow.")
@click.option("--embeddings", metavar="FILE.npy", help="Embeddings made elsewhere instead, see below.")
@click.option("--sentence_embedding_type", metavar="NAME", help="Pooling of --bert_hub: avg, cls, …  [default: avg]")
@click.option("--max_seq_length", type=click.IntRange(3), metavar="N", help="Of --bert_hub.  [default: 64]")
@click.option("--task", default="STS-B", show_default=True, metavar="NAME", help="Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--methods", metavar="LIST", help="Calibrations, commas between.  [default: all of them]")
@click.option("--seeds", default="3", show_default=True, metavar="N|LIST", help="Of the flow: 1 to N, or a list: 7,8.")
@click.option(
    "--fit_on", type=click.Choice(["all", "train"]), default="all", show_default=True, help="Splits to fit on."
)
@click.option("--flow_model_config", metavar="NAME|FILE", help="Of the flow.  [default: config_l3_d3_w32]")
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(embeddings, task, glue_dir, methods, seeds, fit_on, flow_model_config, out, overwrite, **of_encoder):
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
    given = {flag: of_encoder[flag] for flag in ("bert_hub", "model")} | {"embeddings": embeddings}
    sources = [f"--{flag}" for flag, value in given.items() if value]
    if len(sources) != 1:
        raise UserError(
            f"bert-flow calibrate: found {' and '.join(sources) or 'no embeddings'}, expected one of --bert_hub, "
            "--model, --embeddings"
        )
    for flag in ("preprocess_hub", "sentence_embedding_type", "max_seq_length"):
        if of_encoder[flag] is not None and not of_encoder["bert_hub"]:
            raise UserError(f"--{flag}: found {sources[0]}, expected --bert_hub, which it belongs to")
    seeds = parse_seeds(seeds)
    methods = None if methods is None else [name.strip().lower() for name in methods.split(",") if name.strip()]
    _check_out(out, overwrite)
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.evaluation import calibration, compare
    from bert_flow_tf.tasks import get_task

    for name in methods or ():
        calibration.check_name(name)
    _check_flow(flow_model_config)
    task = get_task(task)
    examples, gold = _read(task, glue_dir)
    _check_writable(out)
    sentences = [s for split in examples.values() for pair in _pairs(split) for s in pair]
    if embeddings:
        matrix, made_by = _read_embeddings(embeddings, len(sentences)), {"embeddings": embeddings}
    else:
        matrix, made_by = _embed(sentences, **of_encoder)
    if methods is None:
        methods = [name for name in compare.METHODS if name != "whitening-256" or matrix.shape[1] > 256]
    results = compare.compare(
        _splits(matrix, examples, gold),
        metric=task.metric,
        methods=methods,
        fit_on=fit_on,
        seeds=seeds,
        flow_options={"config": flow_model_config} if flow_model_config else None,
        on_row=lambda row: click.echo(f"{row['method']}: {row['seconds']:.1f} s", err=True),
    )
    # Table 5 is of STS-B, calibrated on all splits: elsewhere its rows would stand beside something else.
    if task.name == "sts-b" and fit_on == "all":
        results = compare.add_paper_rows(results)
    click.echo(compare.format_table(results))
    if any("paper" in row for row in results["rows"]):
        click.echo("paper: Table 5, Spearman x100 of BERT-base, mean of the last layer, fitted on its own target data")
    if out:
        record = {
            "encoder": made_by,
            "data": {
                "task": task.name,
                "glue_dir": str(glue_dir),
                "pairs": {split: len(pairs) for split, pairs in examples.items()},
                "sentences_sha256": hashlib.sha256("\n".join(sentences).encode()).hexdigest(),
            },
            "flow_model_config": flow_model_config or "config_l3_d3_w32",
            **results,
            "versions": _versions(),
        }
        _write(out, record)


def parse_seeds(text):
    """list of the seeds that `--seeds` names: 1 to N for a number, the numbers themselves for a list (`7,` for one).

    Raises:
      UserError: it is neither, empty, or a seed is given twice.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: found {text!r}, expected how many, or a list of seeds from 0, as 7,8,9")
    seeds = [int(part) for part in parts]
    if "," not in text:
        if not seeds[0]:
            raise UserError("--seeds: found 0, expected at least one (0, with the comma is the seed 0)")
        return list(range(1, seeds[0] + 1))
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds: found {text!r}, expected different seeds")
    return seeds


def _check_out(out, overwrite):
    if not out:
        return
    path = pathlib.Path(out)
    if path.is_dir():
        raise UserError(f"--out={out}: found a folder, expected a file's name")
    if path.exists() and not overwrite:
        raise UserError(f"--out={out}: exists, expected a new file or --overwrite")


def _check_writable(out):
    """Makes the folder of `--out`: what is measured would be lost in one that may not be written to."""
    if not out:
        return
    from bert_flow_tf.atomic import make_directory

    folder = pathlib.Path(out).absolute().parent
    make_directory(folder)
    if not os.access(folder, os.W_OK):
        raise UserError(f"--out={out}: its folder cannot be written to, expected one that can")


def _check_flow(flow_model_config):
    from glow.config import GlowConfig

    if flow_model_config is None:
        return
    try:
        GlowConfig.load(flow_model_config)
    except ValueError as error:
        raise UserError(f"--flow_model_config: {error}") from error


def _read(task, glue_dir):
    """Dicts of `Examples` of every split and of gold scores of dev and test; the gold is asked for first."""
    from bert_flow_tf.tasks import gold_scores, read_split

    gold = {split: gold_scores(task, glue_dir, split) for split in ("dev", "test")}
    examples = {split: read_split(task, os.path.join(glue_dir, task.directory), split) for split in _SPLITS}
    for split, scores in gold.items():
        if len(scores) != len(examples[split]):
            raise UserError(
                f"{task.name}, {split}: found {len(scores)} gold scores for {len(examples[split])} pairs, expected as "
                "many"
            )
    return examples, gold


def _pairs(examples):
    return zip(examples.sentences_a, examples.sentences_b, strict=True)


def _embed(sentences, *, bert_hub, preprocess_hub, model, sentence_embedding_type, max_seq_length):
    """Embeddings [n, D] of the sentences, each different one computed once, and a dict of what made them."""
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.convert.from_run import run_checkpoint
    from bert_flow_tf.experiment import read_config
    from bert_flow_tf.input_pipeline import embed, tokenize

    if model:
        loaded = BertFlow.load(model)
        trained = read_config(run_checkpoint(model).parent)["encoder_trained"]
    else:
        loaded = BertFlow.from_hub(
            bert_hub,
            sentence_embedding_type=sentence_embedding_type or "avg",
            max_seq_length=max_seq_length or 64,
            preprocess_hub=preprocess_hub,
        )
        trained = False
    # Not `encode`: a run's flow must not stand between its encoder and the calibrations.
    pieces = tokenize(loaded.tokenizer, sentences, loaded.max_seq_length)
    matrix = embed(loaded.encoder, loaded.tokenizer, pieces, loaded.max_seq_length)
    return matrix, {
        **loaded.source.to_dict(),
        "run": model,
        "encoder_trained": trained,
        "sentence_embedding_type": loaded.sentence_embedding_type,
        "max_seq_length": loaded.max_seq_length,
    }


def _read_embeddings(path, rows):
    import numpy as np

    from bert_flow_tf.evaluation.calibration import check_finite

    try:
        matrix = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"--embeddings={path}: no such file") from None
    except OSError as error:
        raise UserError(f"--embeddings={path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, EOFError) as error:
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


def _versions():
    versions = {"python": platform.python_version()}
    return versions | {name: importlib.metadata.version(name) for name in _LIBRARIES}


def _write(out, record):
    from bert_flow_tf.atomic import write_atomically

    write_atomically(out, json.dumps(record, indent=2) + "\n")
    click.echo(f"results written: {out}")
