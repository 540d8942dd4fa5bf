"""`bert-flow evaluate`: a run, or an encoder as it is, on similarity tasks, by every protocol."""

import importlib.metadata
import json
import os
import pathlib

import click

from bert_flow_tf.errors import UserError

RESULTS_FILE = "evaluation.json"
FORMAT_VERSION = 1

_LIBRARIES = ("bert-flow-tf", "tensorflow", "tensorflow-text", "tensorflow-probability", "scipy", "scikit-learn")
_METRIC_NAMES = {"spearman": "Spearman", "auc": "AUC"}
_COLUMNS = ("task", "split", "metric", "pairs", "wmean", "mean", "all")


@click.command()
@click.option("--model", metavar="RUN", help="Finished run of run_siamese, or one of its checkpoints.")
@click.option("--bert_hub", metavar="HANDLE|DIR", help="An encoder as it is, instead: demo, base, large, …")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub, where it does not tell.")
@click.option("--sentence_embedding_type", metavar="NAME", help="Pooling of --bert_hub: avg, cls, …  [default: avg]")
@click.option("--max_seq_length", type=click.IntRange(3), metavar="N", help="Of --bert_hub.  [default: 64]")
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
def evaluate(names, glue_dir, senteval_dir, split, out, overwrite, **of_the_model):
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
    _check_model(**of_the_model)
    out = _destination(of_the_model["model"], out, overwrite)
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.evaluation.evaluate import embed_tasks, score_tasks
    from bert_flow_tf.evaluation.protocols import PROTOCOLS

    tasks = _read(names, glue_dir=glue_dir, senteval_dir=senteval_dir, split=split)
    model, record = _load(**of_the_model)
    embeddings = embed_tasks(lambda sentences: model.encode(sentences, show_progress_bar=False), tasks)
    results = score_tasks(tasks, embeddings)
    click.echo(format_table(results))
    if out:
        record = {
            "format_version": FORMAT_VERSION,
            "similarity": "cosine",
            "protocols": dict(PROTOCOLS),
            "tasks": results,
            "distinct_sentences": len(embeddings),
            "model": record,
            "versions": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        }
        _write(out, record)


def format_table(results) -> str:
    """One line a task: split, metric, number of pairs, and the figure times 100 by each protocol.

    Args:
      results: dict as `evaluation.evaluate.score_tasks` gives.
    """
    rows = [_COLUMNS]
    for name, result in results.items():
        combined = result[result["metric"]]
        figures = [f"{100 * combined[p]:.2f}" if p in combined else "-" for p in ("wmean", "mean", "all")]
        title = name if name.startswith("tfds:") else result["title"]
        rows.append((title, result["split"], _METRIC_NAMES[result["metric"]], str(result["pairs"]), *figures))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < 3 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(
        [
            *lines,
            "Spearman and AUC x100 of the cosine. wmean: mean over sub-sets weighted by size (SentEval, the paper); "
            "mean: plain mean; all: all pairs together.",
        ]
    )


def _check_model(*, model, bert_hub, **of_bert_hub):
    given = [flag for flag, value in {"--model": model, "--bert_hub": bert_hub}.items() if value]
    if len(given) != 1:
        raise UserError(
            f"bert-flow evaluate: found {' and '.join(given) or 'no model'}, expected one of --model, --bert_hub"
        )
    for flag, value in of_bert_hub.items():
        if model and value is not None:
            raise UserError(f"--{flag}: found --model, expected --bert_hub, which it belongs to (a run has its own)")
    if model and not pathlib.Path(model).is_dir() and not pathlib.Path(f"{model}.index").is_file():
        raise UserError(f"--model={model}: neither a folder nor a checkpoint's prefix, expected a finished run")


def _destination(model, out, overwrite):
    """Path of the file to write, None for none; whatever stands against it is said before anything is computed."""
    from bert_flow_tf.atomic import make_directory

    if out is not None:
        path, flag = pathlib.Path(out), f"--out={out}"
    elif model:
        folder = pathlib.Path(model) if pathlib.Path(model).is_dir() else pathlib.Path(model).parent
        path = folder / RESULTS_FILE
        flag = str(path)
    else:
        return None
    if path.is_dir():
        raise UserError(f"{flag}: found a folder, expected a file's name")
    if path.exists() and not overwrite:
        raise UserError(f"{flag}: exists, expected a new file (--out names another) or --overwrite")
    make_directory(path.absolute().parent)
    if not os.access(path.absolute().parent, os.W_OK):
        raise UserError(f"{flag}: its folder cannot be written to, expected one that can (--out names another)")
    return path


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


def _load(*, model, bert_hub, preprocess_hub, sentence_embedding_type, max_seq_length):
    """`BertFlow` and a dict of what it is, for the results."""
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.convert.from_run import run_checkpoint
    from bert_flow_tf.experiment import read_config

    if model:
        loaded = BertFlow.load(model)
        checkpoint = run_checkpoint(model)
        config = read_config(checkpoint.parent)
        run = {
            "checkpoint": str(checkpoint),
            "task_name": config["task_name"],
            "encoder_trained": config["encoder_trained"],
            "seed": config["flags"].get("seed"),
        }
    else:
        loaded = BertFlow.from_hub(
            bert_hub,
            sentence_embedding_type=sentence_embedding_type or "avg",
            max_seq_length=max_seq_length or 64,
            preprocess_hub=preprocess_hub,
        )
        run = None
    return loaded, {
        "run": run,
        "encoder": loaded.source.to_dict(),
        "sentence_embedding_type": loaded.sentence_embedding_type,
        "max_seq_length": loaded.max_seq_length,
        "low_dim": loaded.low_dim,
        "embedding_size": loaded.embedding_size,
        "flow_config": None if loaded.flow is None else loaded.flow.config.to_dict(),
    }


def _write(path, record):
    from bert_flow_tf.atomic import write_atomically

    write_atomically(path, json.dumps(record, indent=2) + "\n")
    click.echo(f"results written: {path}")
