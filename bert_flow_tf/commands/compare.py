"""`bert-flow compare`: calibrations side by side on your own sentences."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import DEFAULT_METHODS, FitSettings
from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUT, InputForm
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.model_options import (
    SENTENCE_TRANSFORMER,
    ModelOptions,
    load_sentence_transformer,
)
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.commands.pair_options import PairOptions, metric_option
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_table
from bert_flow_tf.commands.task_options import task_option
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.records import made_by
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.tasks import SPLITS, Task, read_split

if TYPE_CHECKING:
    from bert_flow_tf.calibration.judgement import Pairs


@command(
    epilog="\b\nbert-flow compare --bert_hub demo --input tickets.csv --column text --pairs "
    "pairs.csv",
    one_of=[("model", "bert_hub", "sentence_transformer"), ("input", "glue_dir")],
    excludes={"glue_dir": ("pairs",)},
)
@setting_options(ModelOptions, name="model")
@SENTENCE_TRANSFORMER
@INPUT
@setting_options(InputForm, name="form")
@setting_options(PairOptions, name="pairs")
@task_option("With --glue_dir: the task.")
@option("--glue_dir", metavar="DIR", help="Instead of --input and --pairs.")
@option(
    "--methods",
    callback=name_list(),
    default=",".join(DEFAULT_METHODS),
    metavar="LIST",
    help="See above.",
)
@metric_option()
@setting_options(FitSettings, "flow_model_config", "epochs", "batch_size", "seed")
@PLOT
@panels_option("cosines", "bars")
@TABLE_FORMAT
@option("--out", metavar="FILE.json", help="File for the results.")
@option("--overwrite", is_flag=True, needs=("out", "plot"), help="Replace --out and --plot.")
def compare(
    model: ModelOptions,
    sentence_transformer: str | None,
    input_path: str | None,
    form: InputForm,
    pairs: PairOptions,
    task: Task,
    glue_dir: str | None,
    methods: list[str],
    metric: str | None,
    settings: FitSettings,
    plot: str | None,
    panels: list[str] | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
) -> None:
    """Compare an encoder without and with calibrations, and recommend one.

    Enough pairs (columns sentence1,sentence2,score) decide, else the method auto. Methods are
    auto[-D], flow, whitening[-D], soft-whitening-E[-D], sn, natsv-K, and several of them joined
    by +, such as sn+natsv-3. With --glue_dir, they learn from all splits of a task, and its test
    pairs decide.
    """
    _check_methods(methods, settings)
    texts = [] if input_path is None else form.texts(input_path)
    picture = locked_plot(plot, panels, overwrite=overwrite)
    path = locked_file(out, overwrite=overwrite) if out else None
    labelled: Pairs | None = pairs.read()
    if glue_dir:
        texts, labelled = _of_task(task, glue_dir)
    from bert_flow_tf.calibration.comparison import comparison_table
    from bert_flow_tf.model.any_encoder import compare

    encoder: Any = (
        load_sentence_transformer(sentence_transformer) if sentence_transformer else model.load()
    )
    found = compare(encoder, texts, methods, pairs=labelled, metric=metric, settings=settings)
    result = msgspec.structs.replace(
        found,
        made_by=made_by("bert-flow compare"),
        encoder=sentence_transformer or found.encoder,
        task=task.name if glue_dir else None,
    )
    print_table(comparison_table(result), table_format, missing="")
    if path:
        write_results(path, result)
    if picture:
        from bert_flow_tf.report.pictures import pictures_of_comparison

        picture.write(pictures_of_comparison(result))


def _check_methods(methods: Sequence[str], settings: FitSettings) -> None:
    """Raise `UserError` for an unknown method, or options without effect."""
    try:
        found = [find_method(method) for method in methods]
    except ArgumentError as error:
        raise UserError(f"--methods: {str(error).removeprefix('method: ')}") from error
    settings.check_used(found)


def _of_task(task: Task, glue_dir: str) -> tuple[list[str], "Pairs"]:
    """Return all splits' sentences, and the test split's scored pairs."""
    splits = [read_split(task, pathlib.Path(glue_dir) / task.directory, split) for split in SPLITS]
    test = read_scored_split(task, glue_dir, "test")
    pairs = (pair for one in splits for pair in zip(one.sentences_a, one.sentences_b, strict=True))
    sentences = [sentence for pair in pairs for sentence in pair]
    return sentences, (test.sentences_a, test.sentences_b, test.labels.tolist())
