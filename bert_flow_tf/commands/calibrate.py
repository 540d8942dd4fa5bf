"""`bert-flow calibrate`: the paper's Table 5."""

import hashlib
import pathlib
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bert_flow_tf.commands.options import FLOW_OPTION, ModelOptions, model_options, name_list, seed_list, task_option
from bert_flow_tf.commands.outputs import locked_file, new_result, write_results
from bert_flow_tf.data.sts_sets import ScoredPairs, read_scored_split
from bert_flow_tf.data.tasks import Examples, Task, read_split
from bert_flow_tf.evaluation.compare import check_name, is_method

if TYPE_CHECKING:
    from bert_flow_tf.results.records import Calibrations


@click.command(epilog="\b\nbert-flow calibrate --bert_hub demo --pooling cls --glue_dir glue_data")
@model_options(length=64)
@task_option("Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--methods", callback=name_list(), metavar="LIST", help="Calibrations, see above.  [default: all]")
@click.option("--seeds", callback=seed_list, default="3", metavar="N|LIST", help="Flow seeds: 1 to N, or a list: 7,8.")
@click.option("--fit_on", type=click.Choice(["all", "train"]), default="all", help="Splits to fit on.")
@FLOW_OPTION
@click.option("--dropout/--no_dropout", default=True, help="Dropout while the flow learns, as in the original.")
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(
    model: ModelOptions, task: Task, glue_dir: str, methods: list[str] | None, out: str | None, **given: Any
) -> None:
    """Compare calibrations of an encoder's sentence embeddings on a task's test split.

    --methods takes none, sn, natsv-K, natsv, sn+natsv-K, sn+natsv, whitening, whitening-D (D dimensions kept) and flow.
    natsv and sn+natsv choose K from 1 to 20 on the dev split.
    """
    overwrite, flow_model_config, dropout = map(given.pop, ("overwrite", "flow_model_config", "dropout"))
    path = locked_file(out, overwrite=overwrite) if out else None
    for name in methods or ():
        check_name(name)
    # Read the gold scores first, because they may be missing.
    scored = {split: read_scored_split(task, glue_dir, split, split) for split in ("dev", "test")}
    train = read_split(task, pathlib.Path(glue_dir) / task.directory, "train")
    examples: dict[str, Examples | ScoredPairs] = {"train": train, **scored}
    pairs = (pair for one in examples.values() for pair in zip(one.sentences_a, one.sentences_b, strict=True))
    sentences = [sentence for pair in pairs for sentence in pair]
    loaded = model.load()
    matrix = loaded.encode_pooled(sentences)
    from bert_flow_tf.evaluation import compare
    from bert_flow_tf.results.records import Calibrations
    from bert_flow_tf.results.tables import calibration_table

    if dropout:
        fit_sentences = sentences if given["fit_on"] == "all" else sentences[: 2 * len(train)]
        given["flow_rows"] = lambda seed: loaded.encode_pooled(fit_sentences, dropout_seed=seed)
    if methods is None:
        methods = [name for name in compare.METHODS if name != "whitening-256" or matrix.shape[1] > 256]
    splits, start = {}, 0
    for split, one in examples.items():
        splits[split] = compare.Split(matrix[start : start + 2 * len(one)], getattr(one, "gold", None))
        start += 2 * len(one)
    given |= {"metric": task.metric, "methods": methods, "flow_options": {"config": flow_model_config}}
    results = compare.compare_calibrations(splits, **given)
    results |= {"dropout": dropout, "task": task.name, "glue_dir": glue_dir}
    results["pairs"] = {split: len(one) for split, one in examples.items()}
    results["sentences_sha256"] = hashlib.sha256("\n".join(sentences).encode()).hexdigest()
    # The record has no flow, because calibrations start from embeddings before the run's flow.
    results["model"] = msgspec.structs.replace(loaded.record, flow=None, low_dim=-1)
    calibrations = new_result(Calibrations, "calibrate", flow_model_config=flow_model_config, **results)
    click.echo(calibration_table(calibrations).to_text(missing=""))
    click.echo(_advice(calibrations, model))
    if path:
        write_results(path, calibrations)


def _advice(result: "Calibrations", model: ModelOptions) -> str:
    """Return a line with the best calibration that `fit` can learn."""
    scores = {f"{row.method}-{row.k}" if row.k else row.method: getattr(row, result.metric) for row in result.rows}
    known = {name: score for name, score in scores.items() if name == "none" or is_method(name)}
    if not known or (best := max(known, key=lambda name: known[name])) == "none":
        return "Best on these pairs: the encoder without a calibration."
    model_flags = f"--bert_hub {model.bert_hub or 'ENCODER'} --pooling {result.model.pooling}"
    command = f"bert-flow fit {model_flags} --input sentences.txt --method {best} --out my_model"
    return f"Best on these pairs: {best}. Learn it on your sentences: {command}"
