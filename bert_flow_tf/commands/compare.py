"""`bert-flow compare`: calibrations side by side on your own sentences."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from bert_flow_tf.calibration.methods import DEFAULT_METHODS, find_method
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_file, print_table, write_results
from bert_flow_tf.commands.pictures import Plot, plot_options
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.records import made_by
from bert_flow_tf.tasks.labelled_pairs import read_labelled_pairs
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.tasks import SPLITS, Task, read_split

if TYPE_CHECKING:
    from bert_flow_tf.calibration.comparison import Comparison
    from bert_flow_tf.calibration.judgement import Pairs


@click.command(
    epilog="\b\nbert-flow compare --bert_hub demo --input tickets.csv --column text --pairs "
    "pairs.csv"
)
@opt.model_options(required=False)
@opt.SENTENCE_TRANSFORMER
@opt.sentence_options(required=False)
@opt.with_options(opt.PAIR_OPTIONS)
@opt.task_option("With --glue_dir: the task.")
@click.option("--glue_dir", metavar="DIR", help="Instead of --input and --pairs.")
@click.option(
    "--methods",
    callback=opt.name_list(),
    default=",".join(DEFAULT_METHODS),
    metavar="LIST",
    help="See above.",
)
@opt.METRIC
@opt.setting_options(FitSettings, "flow_model_config", "epochs", "batch_size", "seed")
@plot_options("cosines", "bars")
@opt.TABLE_FORMAT
@click.option("--out", metavar="FILE.json", help="File for the results.")
@click.option("--overwrite", is_flag=True, help="Replace --out and --plot.")
def compare(
    model: opt.ModelOptions,
    sentence_transformer: str | None,
    sentences: Iterator[str] | None,
    settings: FitSettings,
    methods: list[str],
    metric: str | None,
    plot: Plot | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
    **data: Any,
) -> None:
    """Compare an encoder without and with calibrations, and recommend one.

    Enough labelled pairs decide (columns: sentence1,sentence2,score; TSV: 1,2,3), else the method
    auto. Methods are auto[-D], flow, whitening[-D], soft-whitening-E[-D], sn, natsv-K, and several
    of them joined by +, such as sn+natsv-3 and whitening+flow. With --glue_dir, they learn from all
    splits of a task, and its test pairs decide.
    """
    opt.check_one_of(
        {
            "model": model.model,
            "bert_hub": model.bert_hub,
            "sentence_transformer": sentence_transformer,
        }
    )
    opt.check_one_of({"input": sentences, "glue_dir": data["glue_dir"]})
    _check_methods(methods)
    path = locked_file(out, overwrite=overwrite) if out else None
    task: Task | None = data["task"] if data["glue_dir"] else None
    pairs: Pairs | None = None
    if task:
        given, pairs = _of_task(task, data["glue_dir"])
    else:
        given = [sentence for sentence in sentences or () if sentence.strip()]
        if data["pairs"] is not None:
            pairs = read_labelled_pairs(data["pairs"], data["pair_columns"])
    from bert_flow_tf.calibration.comparison import comparison_table
    from bert_flow_tf.model.any_encoder import compare

    encoder: Any = (
        opt.load_sentence_transformer(sentence_transformer)
        if sentence_transformer
        else model.load()
    )
    found = compare(encoder, given, methods, pairs=pairs, metric=metric, settings=settings)
    result = msgspec.structs.replace(
        found,
        made_by=made_by("bert-flow compare"),
        encoder=sentence_transformer or found.encoder,
        task=task.name if task else None,
    )
    print_table(comparison_table(result), table_format, missing="")
    if path:
        write_results(path, result)
    if plot:
        _draw(plot, result)


def _draw(plot: Plot, result: "Comparison") -> None:
    """Draw the cosines of each method, and the scores on pairs."""
    from bert_flow_tf.report import plots

    pictures: dict[str, list[plots.Panel]] = {"cosines": [], "bars": []}
    counts, thresholds = plots.cosines_of(result)
    if any(counts.values()):
        pictures["cosines"] = [
            plots.Panel(lambda axes: plots.cosines(counts, thresholds, ax=axes[0]))
        ]
    scores = plots.scores_of_comparison(result)
    if scores:
        spread = "95 % of the change"
        pictures["bars"] = [plots.Panel(lambda axes: plots.bars(scores, spread=spread, ax=axes[0]))]
    plot.write(pictures)


def _check_methods(methods: Sequence[str]) -> None:
    for method in methods:
        try:
            find_method(method)
        except ArgumentError as error:
            raise UserError(f"--methods: {str(error).removeprefix('method: ')}") from error


def _of_task(task: Task, glue_dir: str) -> tuple[list[str], "Pairs"]:
    """Return all splits' sentences, and the test split's scored pairs."""
    splits = [read_split(task, pathlib.Path(glue_dir) / task.directory, split) for split in SPLITS]
    test = read_scored_split(task, glue_dir, "test")
    pairs = (pair for one in splits for pair in zip(one.sentences_a, one.sentences_b, strict=True))
    sentences = [sentence for pair in pairs for sentence in pair]
    return sentences, (test.sentences_a, test.sentences_b, test.labels.tolist())
