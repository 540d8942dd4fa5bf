"""`bert-flow calibrate`: every calibration against the same embeddings, the experiment of the paper's Table 5."""

import hashlib
import pathlib
from typing import Any

import click
import msgspec

from bert_flow_tf.commands.options import FLOW_OPTION, ModelOptions, model_options, name_list, seed_list, task_option
from bert_flow_tf.commands.outputs import made_result, own_file, write_results
from bert_flow_tf.data.sts_sets import ScoredPairs, read_scored_split
from bert_flow_tf.data.tasks import Examples, Task, read_split
from bert_flow_tf.evaluation.compare import check_name


@click.command(epilog="\b\nbert-flow calibrate --bert_hub demo --sentence_embedding_type cls --glue_dir glue_data")
@model_options()
@task_option("Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--methods", callback=name_list(), metavar="LIST", help="Calibrations, see above.  [default: all]")
@click.option("--seeds", callback=seed_list, default="3", metavar="N|LIST", help="Of the flow: 1 to N, or a list: 7,8.")
@click.option("--fit_on", type=click.Choice(["all", "train"]), default="all", help="Splits to fit on.")
@FLOW_OPTION
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(
    model: ModelOptions, task: Task, glue_dir: str, methods: list[str] | None, out: str | None, **given: Any
) -> None:
    """Compare calibrations of an encoder's sentence embeddings on a task's test split.

    --methods takes none, sn, natsv-K, natsv, sn+natsv-K, sn+natsv, whitening, whitening-D (D dimensions kept) and flow.
    natsv and sn+natsv choose K among 1 to 20 by the dev split.
    """
    overwrite, flow_model_config = given.pop("overwrite"), given.pop("flow_model_config")
    path = own_file(out, overwrite=overwrite) if out else None
    for name in methods or ():
        check_name(name)
    # Missing gold scores, of dev and test, are found first.
    scored = {split: read_scored_split(task, glue_dir, split, split) for split in ("dev", "test")}
    train = read_split(task, pathlib.Path(glue_dir) / task.directory, "train")
    examples: dict[str, Examples | ScoredPairs] = {"train": train, **scored}
    pairs = (pair for one in examples.values() for pair in zip(one.sentences_a, one.sentences_b, strict=True))
    sentences = [sentence for pair in pairs for sentence in pair]
    loaded = model.load()
    matrix = loaded.encode_pooled(sentences)
    from bert_flow_tf.evaluation import compare
    from bert_flow_tf.report.tables import calibration_table
    from bert_flow_tf.results.records import Calibrations

    if methods is None:
        methods = [name for name in compare.METHODS if name != "whitening-256" or matrix.shape[1] > 256]
    splits, start = {}, 0
    for split, one in examples.items():
        splits[split] = compare.Split(matrix[start : start + 2 * len(one)], getattr(one, "gold", None))
        start += 2 * len(one)
    given |= {"metric": task.metric, "methods": methods, "flow_options": {"config": flow_model_config}}
    given["on_row"] = lambda row: click.echo(f"{row['method']}: {row['seconds']:.1f} s", err=True)
    results = compare.compare_calibrations(splits, **given)
    results |= {"task": task.name, "glue_dir": glue_dir, "pairs": {split: len(one) for split, one in examples.items()}}
    results["sentences_sha256"] = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    # A run's own flow is none of the calibrations.
    results["model"] = msgspec.structs.replace(loaded.record, flow=None, low_dim=-1)
    calibrations = made_result(Calibrations, "calibrate", flow_model_config=flow_model_config, **results)
    click.echo(calibration_table(calibrations).to_text(missing=""))
    if path:
        write_results(path, calibrations)
