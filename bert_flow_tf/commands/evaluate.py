"""`bert-flow evaluate`: score a model on tasks."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from bert_flow_tf.commands.options import (
    PAIR_OPTIONS,
    SENTEVAL_OPTION,
    TABLE_FORMAT,
    ModelOptions,
    model_options,
    name_list,
    with_options,
)
from bert_flow_tf.commands.outputs import locked_file, print_table, write_results
from bert_flow_tf.commands.pictures import Plot, plot_options
from bert_flow_tf.report.reports import scores_table
from bert_flow_tf.tasks.labelled_pairs import read_labelled_pairs
from bert_flow_tf.tasks.tasks import SPLITS
from bert_flow_tf.training.run_folder import EVALUATION_FILE, locked_run
from bert_flow_tf.training.run_records import is_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bert_flow_tf.report.plots import Pairs
    from bert_flow_tf.tasks.scored_tasks import ScoredTask


@click.command(
    epilog="\b\nbert-flow evaluate --model runs/stsb_flow --tasks stsb,sts12 --glue_dir glue_data "
    "--senteval_dir data"
)
@model_options(length=64)
@click.option(
    "--tasks",
    "names",
    callback=name_list(),
    metavar="LIST",
    help="Tasks, see above.",
)
@with_options(PAIR_OPTIONS)
@click.option("--glue_dir", metavar="DIR", help="Folder that holds STS-B, SICK-R, …")
@SENTEVAL_OPTION
@click.option(
    "--split", type=click.Choice(SPLITS), help="[default: test, or dev without test labels]"
)
@plot_options("gold", "reliability")
@TABLE_FORMAT
@click.option("--out", metavar="FILE", help=f"Results.  [default for a run: its {EVALUATION_FILE}]")
@click.option("--overwrite", is_flag=True, help="Replace existing results.")
def evaluate(
    model: ModelOptions,
    names: list[str] | None,
    pairs: str | None,
    pair_columns: str | None,
    plot: Plot | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
    **data: str | None,
) -> None:
    """Score embeddings by Spearman, AUC or accuracy, times 100.

    Pairs with scores of 0 and 1 are scored by AUC, others by Spearman.

    Tasks are sts12 to sts16, stsb, sickr, mrpc, qnli and qqp; and SentEval's mr, cr, subj, mpqa,
    sst2, trec and, without --glue_dir, mrpc, by the accuracy of a logistic regression.

    sts12 to sts16 have several sets: x100 is the mean over them weighted by size, as in the paper;
    beside it stands the correlation of all pairs, as in later papers. A model with a flow is also
    scored without it; a note explains a fall of more than 0.5.
    """
    if bool(names) == bool(pairs):
        raise click.UsageError("expected --tasks or --pairs, and not both")
    if pair_columns and not pairs:
        raise click.UsageError("--pair_columns: missing --pairs, which it needs")
    # A saved model gets no file that is not part of it.
    if model.run_dir and is_run(model.run_dir) and not out:
        # No other command may change the run until its scores are written.
        click.get_current_context().with_resource(locked_run(model.run_dir))
        out = str(model.run_dir / EVALUATION_FILE)
    path = locked_file(out, overwrite=overwrite) if out else None
    from bert_flow_tf.tasks.scored_tasks import read_tasks

    given = None if pairs is None else read_labelled_pairs(pairs, pair_columns)
    read = read_tasks(names or (), **data)
    tasks = read.tasks
    from bert_flow_tf.calibration.judgement import checked_pairs
    from bert_flow_tf.model.scoring import pairs_task, scores_of

    if given is not None:
        first, second, scores = checked_pairs(given)
        tasks = [pairs_task(list(first), list(second), scores)]
    kept: dict[str, Pairs] = {}
    keep = functools.partial(_keep, kept) if plot else None
    results = scores_of("bert-flow evaluate", model.load(), tasks, keep)
    print_table(scores_table(results), table_format)
    if path:
        write_results(path, results)
    if plot:
        _draw(plot, kept)
    read.check_complete()


def _keep(kept: "dict[str, Pairs]", side: str, task: "ScoredTask", cosines: np.ndarray) -> None:
    """Add a side's cosines to the pairs of a task."""
    from bert_flow_tf.report.plots import Pairs

    gold = np.concatenate([part.labels for part in task.subsets.values()])
    kept.setdefault(task.name, Pairs(gold, {}, task.title)).cosines[side] = cosines


def _draw(plot: Plot, kept: "Mapping[str, Pairs]") -> None:
    """Draw graded pairs against their scores, and labels by cosine."""
    from bert_flow_tf.report import plots

    pictures: dict[str, list[plots.Panel]] = {"gold": [], "reliability": []}
    for pairs in kept.values():
        name = "reliability" if pairs.has_labels else "gold"
        draw = plots.reliability if pairs.has_labels else plots.gold
        pictures[name].append(
            plots.Panel(functools.partial(_on_axes, draw, pairs), len(pairs.cosines))
        )
    plot.write(pictures)


def _on_axes(draw: "Callable[..., Figure]", pairs: "Pairs", axes: "Sequence[Axes]") -> "Figure":
    return draw(pairs, axes=axes)
