"""`bert-flow isotropy`: how evenly embeddings fill their space."""

import os
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from bert_flow_tf.commands.colours import COLOUR, read_colours
from bert_flow_tf.commands.command import check_one_of, command, option, setting_options
from bert_flow_tf.commands.input_options import INPUT, InputForm
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.commands.pair_options import PairOptions
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_table
from bert_flow_tf.commands.task_options import TaskModelOptions, task_option
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.scores import (
    channels_in_words,
    isotropy_table,
    model_in_words,
)
from bert_flow_tf.tasks.tasks import SPLITS, Task, has_gold_scores, read_split
from bert_flow_tf.vectors.isotropy import positive_pairs

if TYPE_CHECKING:
    from bert_flow_tf.calibration.judgement import Pairs


@command(
    epilog="\b\nbert-flow isotropy --model my_model --input sentences.txt\n"
    "bert-flow isotropy --model runs/stsb_flow --glue_dir glue_data",
    one_of=[("model", "bert_hub")],
    excludes={"glue_dir": ("input", "pairs")},
)
@setting_options(TaskModelOptions, name="model")
@COLOUR
@INPUT
@setting_options(InputForm, name="form")
@setting_options(PairOptions, name="pairs")
@task_option("With --glue_dir: the task.")
@option("--glue_dir", metavar="DIR", help="Instead of --input and --pairs.")
@option(
    "--split",
    type=click.Choice((*SPLITS, "all")),
    default="dev",
    needs=("glue_dir",),
    help="With --glue_dir: split of the task.",
)
@PLOT
@panels_option("cosines", "plane", "spectrum")
@TABLE_FORMAT
@option("--out", metavar="FILE", help="JSON file of the measures and the singular values.")
@option("--overwrite", is_flag=True, needs=("out", "plot"), help="Replace files.")
def isotropy(
    model: TaskModelOptions,
    colour: str | None,
    input_path: str | None,
    form: InputForm,
    pairs: PairOptions,
    task: Task,
    glue_dir: str | None,
    split: str,
    plot: str | None,
    panels: list[str] | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
) -> None:
    """Measure how evenly embeddings fill their space.

    This prints mean cosines, the top singular direction's share, effective ranks, IsoScore,
    uniformity and bits per dimension. With pairs of the label 1, or above 4 of 5 points, it
    also prints their alignment. Sentences are those of --input, else of --pairs.
    """
    if not (input_path or pairs.pairs):
        check_one_of("input", "pairs", "glue_dir")
    colours = read_colours(colour, input_path, form)
    texts = [] if input_path is None else form.texts(input_path)
    picture = locked_plot(plot, panels, overwrite=overwrite)
    path = locked_file(out, overwrite=overwrite) if out else None
    measured = _of_task(task, glue_dir, split) if glue_dir else _of_files(texts, pairs.read())
    loaded = model.load()
    from bert_flow_tf.report.isotropy import measure_model

    found = measure_model(loaded, measured.sentences, measured.pairs)
    result = found.results
    if glue_dir:
        result = msgspec.structs.replace(result, task=task.name, split=split)
    of_model = model_in_words(loaded.record)
    words = f"{result.sentences:,} different sentences of {measured.source}; "
    words += channels_in_words(result)
    table = isotropy_table(result)
    table.title = f"{words}; {of_model}"
    print_table(table, table_format)
    if path:
        write_results(path, result)
    if picture:
        from bert_flow_tf.report.pictures import pictures_of_isotropy

        values = colours.of(measured.sentences) if colours else None
        column = colours.column if colours else ""
        picture.write(pictures_of_isotropy(result, found.sides, values, column))


class _Measured(NamedTuple):
    """Different sentences, and positive pairs of some."""

    source: str
    sentences: list[str]
    pairs: list[tuple[str, str]]


def _of_task(task: Task, glue_dir: str, split: str) -> _Measured:
    """Return the sentences of one split or all, and their positive pairs."""
    sentences: list[str] = []
    pairs: list[tuple[str, str]] = []
    for name in SPLITS if split == "all" else (split,):
        examples = read_split(task, os.path.join(glue_dir, task.directory), name)
        sentences += examples.sentences_a + examples.sentences_b
        # The task, or the public data, may have no scores for this split.
        if not has_gold_scores(task, os.path.join(glue_dir, task.directory), name):
            continue
        examples = read_scored_split(task, glue_dir, name)
        both = list(zip(examples.sentences_a, examples.sentences_b, strict=True))
        pairs += [both[i] for i in positive_pairs(examples.labels.tolist(), task.label_max)]
    return _Measured(f"{task.directory}, {split}", list(dict.fromkeys(sentences)), pairs)


def _of_files(texts: list[str], scored: "Pairs | None") -> _Measured:
    """Return a file's sentences, else those of pairs, and positive pairs."""
    first, second, scores = scored or ([], [], [])
    pairs = list(zip(first, second, strict=True))
    source = "--input" if texts else "--pairs"
    texts = texts or [*first, *second]
    if len(set(texts)) < 2:
        raise UserError(
            f"{source}: found {len(set(texts))} different sentences, expected 2 or more"
        )
    positive = positive_pairs(scores).tolist() if pairs else []
    return _Measured(source, list(dict.fromkeys(texts)), [pairs[i] for i in positive])
