"""`bert-flow evaluate`: score a model on tasks."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, refuse, setting_options
from bert_flow_tf.commands.options import (
    HELP_OF_SENTEVAL,
    PairOptions,
    TaskModelOptions,
    name_list,
)
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.commands.pictures import PLOT, Plot, locked_plot, panels_option
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_table
from bert_flow_tf.report.reports import scores_table
from bert_flow_tf.tasks.tasks import SPLITS
from bert_flow_tf.training.run_folder import EVALUATION_FILE, locked_run
from bert_flow_tf.training.run_records import is_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bert_flow_tf.report.plots import Pairs
    from bert_flow_tf.tasks.scored_tasks import ScoredTask


@command(
    epilog="\b\nbert-flow evaluate --model runs/stsb_flow --tasks stsb,sts12 --glue_dir glue_data "
    "--senteval_dir data",
    one_of=[("model", "bert_hub"), ("tasks", "pairs")],
)
@setting_options(TaskModelOptions, name="model")
@option("--tasks", "names", callback=name_list(), metavar="LIST", help="Tasks, see above.")
@setting_options(PairOptions, name="pairs")
@option("--glue_dir", metavar="DIR", needs=("tasks",), help="Folder that holds STS-B, SICK-R, …")
@option(
    "--senteval_dir",
    metavar="DIR",
    needs=("tasks",),
    help=HELP_OF_SENTEVAL,
)
@option(
    "--split",
    type=click.Choice(SPLITS),
    needs=("tasks",),
    help="[default: test, or dev without test labels]",
)
@PLOT
@panels_option("gold", "reliability")
@TABLE_FORMAT
@option("--out", metavar="FILE", help=f"Results.  [default for a run: its {EVALUATION_FILE}]")
@option(
    "--overwrite",
    is_flag=True,
    needs=("out", "plot", "model"),
    help="Replace existing results.",
)
def evaluate(
    model: TaskModelOptions,
    names: list[str] | None,
    pairs: PairOptions,
    glue_dir: str | None,
    senteval_dir: str | None,
    split: str | None,
    plot: str | None,
    panels: list[str] | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
) -> None:
    """Score embeddings by Spearman, AUC or accuracy, times 100.

    Pairs with scores of 0 and 1 are scored by AUC, others by Spearman.

    Tasks are sts12 to sts16, stsb, sickr, mrpc, qnli and qqp; and SentEval's mr, cr, subj, mpqa,
    sst2, trec and, without --glue_dir, mrpc, by the accuracy of a logistic regression.

    sts12 to sts16 have several sets: x100 is the mean over them weighted by size, as in the paper;
    beside it stands the correlation of all pairs, as in later papers. A model with a flow is also
    scored without it; a note explains a fall of more than 0.5.
    """
    picture = locked_plot(plot, panels, overwrite=overwrite)
    # A saved model gets no file that is not part of it.
    if model.run_dir and is_run(model.run_dir) and not out:
        # No other command may change the run until its scores are written.
        click.get_current_context().with_resource(locked_run(model.run_dir))
        out = str(model.run_dir / EVALUATION_FILE)
    if not (out or picture):
        refuse(("overwrite",), "a model that is no run, without --out and --plot")
    path = locked_file(out, overwrite=overwrite) if out else None
    from bert_flow_tf.tasks.scored_tasks import read_tasks

    given = pairs.read()
    read = read_tasks(names or (), glue_dir=glue_dir, senteval_dir=senteval_dir, split=split)
    tasks = read.tasks
    from bert_flow_tf.calibration.judgement import checked_pairs
    from bert_flow_tf.model.scoring import pairs_task, scores_of

    if given is not None:
        first, second, scores = checked_pairs(given)
        tasks = [pairs_task(list(first), list(second), scores)]
    kept: dict[str, Pairs] = {}
    keep = functools.partial(_keep, kept) if picture else None
    results = scores_of("bert-flow evaluate", model.load(), tasks, keep)
    print_table(scores_table(results), table_format)
    if path:
        write_results(path, results)
    if picture:
        _draw(picture, kept)
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
