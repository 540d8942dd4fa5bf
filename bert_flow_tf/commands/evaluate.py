"""`bert-flow evaluate`: score a model on tasks."""

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, refuse, setting_options
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.commands.pair_options import PairOptions
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_table
from bert_flow_tf.commands.task_options import HELP_OF_SENTEVAL, TaskModelOptions
from bert_flow_tf.common.checkpoints import checkpoint_prefix, named_checkpoint
from bert_flow_tf.common.json_files import is_run, read_json
from bert_flow_tf.report.reports import scores_table
from bert_flow_tf.tasks.scored_tasks import read_tasks
from bert_flow_tf.tasks.scores import Basis, Scores, remaining_tasks, write_scores
from bert_flow_tf.tasks.tasks import SPLITS
from bert_flow_tf.training.run_folder import EVALUATION_FILE, locked_run

if TYPE_CHECKING:
    from bert_flow_tf.report.plots import ScoredPairs
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
    path = _locked_scores(model, out, overwrite=overwrite, has_picture=picture is not None)
    read = read_tasks(names or (), glue_dir=glue_dir, senteval_dir=senteval_dir, split=split)
    from bert_flow_tf.tasks.scoring import pairs_task

    own = pairs.read()
    tasks = [pairs_task(*own)] if own else read.tasks
    if path:
        # Another mistake than the model's is found before TensorFlow loads.
        remaining_tasks(path, Basis(_digests(tasks), {}), overwrite=overwrite)
    kept: dict[str, ScoredPairs] = {}
    results = _scores(model, tasks, path, overwrite=overwrite, kept=kept if picture else None)
    print_table(scores_table(results), table_format)
    if picture:
        from bert_flow_tf.report.pictures import pictures_of_pairs

        picture.write(pictures_of_pairs(kept.values()))
    read.check_complete()


def _locked_scores(
    model: TaskModelOptions, out: str | None, *, overwrite: bool, has_picture: bool
) -> pathlib.Path | None:
    """Lock and return the file of the scores, if any."""
    run_dir = model.run_dir
    # A saved model gets no file that is not part of it.
    if run_dir and is_run(run_dir) and not out:
        # No other command may change the run until its scores are written.
        click.get_current_context().with_resource(locked_run(run_dir))
        out = str(_file_in_run(run_dir, str(model.model)))
    if not out:
        if not has_picture:
            refuse(("overwrite",), "a model that is no run, without --out and --plot")
        return None
    # Scores of the same model on other tasks stay in the file.
    path = locked_file(out, overwrite=True)
    # A file of another kind is found before any work.
    remaining_tasks(path, Basis({}, {}), overwrite=overwrite)
    return path


def _digests(tasks: "Sequence[ScoredTask]") -> dict[str, str]:
    return {task.name: task.digest for task in tasks}


def _scores(
    options: TaskModelOptions,
    tasks: "list[ScoredTask]",
    path: pathlib.Path | None,
    *,
    overwrite: bool,
    kept: "dict[str, ScoredPairs] | None",
) -> Scores:
    """Score the tasks that the file lacks; write and return its scores.

    Args:
      kept: gets the cosines of all tasks, for a picture.
    """
    from bert_flow_tf.tasks.scoring import scores_of

    loaded = options.load()
    if path:
        basis = Basis(_digests(tasks), {}, loaded.record, loaded.fingerprint)
        remaining = remaining_tasks(path, basis, overwrite=overwrite)
        tasks = [task for task in tasks if kept is not None or task.name in remaining]
        if not tasks:
            say(f"done before: {path}", err=True)
            return read_json(path, Scores, expected="scores of bert-flow")
    keep = None if kept is None else functools.partial(_keep, kept)
    name = options.model or options.bert_hub or ""
    results = scores_of("bert-flow evaluate", loaded, tasks, keep, name=name)
    if path:
        results = write_scores(path, results, overwrite=overwrite)
        say(f"results written: {path}", err=True)
    return results


def _file_in_run(run_dir: pathlib.Path, model: str) -> pathlib.Path:
    """Return the file of a run's scores.

    The file's name begins with a checkpoint's if `model` names one other than the latest.
    """
    if os.path.isdir(model):
        return run_dir / EVALUATION_FILE
    name = checkpoint_prefix(model).name
    latest = pathlib.Path(named_checkpoint(run_dir) or "").name
    return run_dir / (EVALUATION_FILE if name == latest else f"{name}.{EVALUATION_FILE}")


def _keep(
    kept: "dict[str, ScoredPairs]", side: str, task: "ScoredTask", cosines: np.ndarray
) -> None:
    """Add a side's cosines to the pairs of a task."""
    from bert_flow_tf.report.plots import ScoredPairs

    gold = np.concatenate([part.labels for part in task.subsets.values()])
    kept.setdefault(task.name, ScoredPairs(gold, {}, task.title)).cosines[side] = cosines
