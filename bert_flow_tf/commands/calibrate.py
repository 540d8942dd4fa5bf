"""`bert-flow calibrate`: the paper's Table 5."""

import dataclasses
import hashlib
import pathlib
from typing import TYPE_CHECKING

import click
import msgspec
import numpy as np

from bert_flow_tf.commands.options import (
    ModelOptions,
    model_options,
    name_list,
    seed_list,
    setting_options,
    task_option,
)
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.data.scored_tasks import read_scored_split
from bert_flow_tf.data.tasks import Task, read_split
from bert_flow_tf.evaluation.methods import check_name, is_method
from bert_flow_tf.runs.record import made_by
from bert_flow_tf.runs.settings import Settings, flag, flow_config
from glow.config import DEFAULT_CONFIG

if TYPE_CHECKING:
    from bert_flow_tf.results.records import Calibrations

_METHODS = ("none", "sn", "natsv-1", "natsv", "sn+natsv-1", "sn+natsv", "whitening", "whitening-256", "flow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrateSettings(Settings):
    """The settings of the flow and the rows that calibrations learn from."""

    fit_on: str = flag("all", "Splits to fit on.", choices=("all", "train"))
    flow_model_config: str = flag(DEFAULT_CONFIG, "Configuration of the flow.")
    dropout: bool = flag(True, "Dropout while the flow learns, as in the original.", option="dropout/--no_dropout")

    def __post_init__(self) -> None:
        super().__post_init__()
        flow_config(self.flow_model_config)


@click.command(epilog="\b\nbert-flow calibrate --bert_hub demo --pooling cls --glue_dir glue_data")
@model_options(length=64)
@task_option("Task with dev and test scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--methods", callback=name_list(), metavar="LIST", help="Calibrations, see above.  [default: all]")
@click.option("--seeds", callback=seed_list, default="3", metavar="N|LIST", help="Flow seeds: 1 to N, or a list: 7,8.")
@setting_options(CalibrateSettings)
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def calibrate(
    model: ModelOptions,
    task: Task,
    glue_dir: str,
    methods: list[str] | None,
    seeds: list[int],
    settings: CalibrateSettings,
    out: str | None,
    overwrite: bool,
) -> None:
    """Compare calibrations of an encoder's sentence embeddings on a task's test split.

    --methods takes none, sn, natsv-K, natsv, sn+natsv-K, sn+natsv, whitening, whitening-D (D dimensions kept) and flow.
    natsv and sn+natsv choose K from 1 to 20 on the dev split.
    """
    path = locked_file(out, overwrite=overwrite) if out else None
    for name in methods or ():
        check_name(name)
    # Read the gold scores first, because they may be missing.
    dev, test = (read_scored_split(task, glue_dir, split) for split in ("dev", "test"))
    train = read_split(task, pathlib.Path(glue_dir) / task.directory, "train")
    pairs = (pair for one in (train, dev, test) for pair in zip(one.sentences_a, one.sentences_b, strict=True))
    sentences = [sentence for pair in pairs for sentence in pair]
    loaded = model.load()
    rows = loaded.encode_pooled(sentences)
    from bert_flow_tf.evaluation.calibration import Split, compare_calibrations
    from bert_flow_tf.results.records import Calibrations
    from bert_flow_tf.results.tables import calibration_table
    from glow.calibrator import FlowCalibrator

    ends = 2 * np.cumsum([len(train), len(dev)])
    splits = zip(("dev", "test"), np.split(rows, ends)[1:], (dev.labels, test.labels), strict=True)
    fit_rows = rows if settings.fit_on == "all" else rows[: ends[0]]

    def learn_flow(seed: int) -> FlowCalibrator:
        u = loaded.encode_pooled(sentences[: len(fit_rows)], dropout_seed=seed) if settings.dropout else fit_rows
        return FlowCalibrator(settings.flow_model_config, seed=seed).fit(u)

    methods = methods or [name for name in _METHODS if name != "whitening-256" or rows.shape[1] > 256]
    scored_dev, scored_test = (Split(name, u, gold, task.metric) for name, u, gold in splits)
    result = Calibrations(
        made_by=made_by("bert-flow calibrate"),
        # The record has no flow, because calibrations start from embeddings before the run's flow.
        model=msgspec.structs.replace(loaded.record, flow=None, low_dim=-1),
        task=task.name,
        glue_dir=glue_dir,
        pairs={"train": len(train), "dev": len(dev), "test": len(test)},
        sentences_sha256=hashlib.sha256("\n".join(sentences).encode()).hexdigest(),
        metric=task.metric,
        **vars(settings),
        rows=compare_calibrations(methods, fit_rows, scored_dev, scored_test, seeds, learn_flow),
    )
    click.echo(calibration_table(result).to_text(missing=""))
    click.echo(_advice(result, model))
    if path:
        write_results(path, result)


def _advice(result: "Calibrations", model: ModelOptions) -> str:
    """Return a line with the best calibration that `fit` can learn."""
    scores = {f"{row.method}-{row.k}" if row.k else row.method: row.by_metric[result.metric] for row in result.rows}
    known = {name: score for name, score in scores.items() if name == "none" or is_method(name)}
    if not known or (best := max(known, key=lambda name: known[name])) == "none":
        return "Best on these pairs: the encoder without a calibration."
    model_flags = f"--bert_hub {model.bert_hub or 'ENCODER'} --pooling {result.model.pooling}"
    command = f"bert-flow fit {model_flags} --input sentences.txt --method {best} --out my_model"
    return f"Best on these pairs: {best}. Learn it on your sentences: {command}"
