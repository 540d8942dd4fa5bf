"""`bert-flow reproduce`: rows of the paper's tables, trained and scored over seeds."""

import collections
import contextlib
import dataclasses
import itertools
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from bert_flow_tf.commands.command import command, option
from bert_flow_tf.commands.lists import name_list, seed_list
from bert_flow_tf.commands.outputs import lock_output, write_results
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_table
from bert_flow_tf.commands.task_options import HELP_OF_SENTEVAL, task_list
from bert_flow_tf.common.atomic import output_folder
from bert_flow_tf.common.errors import ArgumentError, UserError, suggest
from bert_flow_tf.common.json_files import read_json
from bert_flow_tf.common.reading import check_local
from bert_flow_tf.common.records import made_by
from bert_flow_tf.common.settings import flow_config
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling
from bert_flow_tf.original.settings import (
    DataSettings,
    LossSettings,
    ModelSettings,
    TrainingSettings,
)
from bert_flow_tf.report.collected import REPRODUCTION_FILE
from bert_flow_tf.report.paper import PRESETS, Preset

if TYPE_CHECKING:
    from bert_flow_tf.original.recipe import Outcome, OwnRow, Recipe, Stage
    from bert_flow_tf.tasks.scored_tasks import ScoredTask
    from bert_flow_tf.tasks.scores import Basis, ScoredRun

    Row = Preset | OwnRow

_ROWS = "avg,last2avg,flow-target"
_TASKS = ("stsb", "sickr", "mrpc", "qnli", "sts12", "sts13", "sts14", "sts15", "sts16")
# The command sets these flags of `run_siamese` itself.
_SET_HERE = {
    "task_name",
    "data_dir",
    "bert_hub",
    "preprocess_hub",
    "bert_config_file",
    "vocab_file",
    "init_checkpoint",
    "cached_dir",
    "do_train",
    "seed",
}
_ROW_FLAGS = {
    field.name
    for part in (DataSettings, ModelSettings, LossSettings, TrainingSettings)
    for field in dataclasses.fields(part)
} - _SET_HERE


@command(
    one_of=[("bert_hub", "bert_premodels")],
    epilog="\b\n"
    "bert-flow reproduce --bert_hub demo --glue_dir glue_data --seeds 5 --out five_seeds\n"
    "bert-flow reproduce --bert_hub demo --glue_dir glue_data --seeds 5 --out five_seeds "
    "--row rate-1e-4 --flow_learning_rate 1e-4",
    # The flags of --row are those of run_siamese.
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@option(
    "--rows",
    callback=name_list(PRESETS),
    metavar="LIST",
    help=f"Rows, see above.  [default: {_ROWS}, or none with --row]",
)
@option("--row", metavar="NAME", help="A row of your own, see above.")
@option(
    "--seeds",
    callback=seed_list,
    default=f"{TrainingSettings.seed},",
    metavar="N|LIST",
    show_default=False,
    help="Seeds 1 to N, or a list; a row without training takes one.  "
    f"[default: {TrainingSettings.seed}]",
)
@option("--nli", is_flag=True, help="Fine-tune on NLI first (Table 3).")
@option("--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, a handle or a folder.")
@option(
    "--preprocess_hub",
    metavar="HANDLE|DIR",
    needs=("bert_hub",),
    help="Preprocess model of --bert_hub.",
)
@option("--bert_premodels", metavar="DIR", help="TF1 BERT checkpoints instead of --bert_hub.")
@option(
    "--bert_name",
    type=click.Choice(["base", "large", "large-wwm"]),
    needs=("bert_premodels",),
    help="Checkpoint in --bert_premodels.",
)
@option("--glue_dir", required=True, metavar="DIR", help="Folder of STS-B, MNLI, SNLI, …")
@option("--senteval_dir", metavar="DIR", help=HELP_OF_SENTEVAL)
@option(
    "--tasks",
    "names",
    callback=task_list(_TASKS),
    default="stsb",
    metavar="LIST",
    help="Tasks, see above.",
)
@TABLE_FORMAT
@option("--out", required=True, metavar="DIR", help="Folder of runs and results.")
@option("--overwrite", is_flag=True, help="Run every stage again.")
@click.pass_context
def reproduce(
    context: click.Context,
    rows: list[str] | None,
    row: str | None,
    seeds: list[int],
    nli: bool,
    glue_dir: str,
    senteval_dir: str | None,
    names: list[str],
    table_format: str,
    out: str,
    overwrite: bool,
    **encoder: str | None,
) -> None:
    """Reproduce the paper's Tables 2 to 4 and 8, or your rows.

    \b
    avg          mean of the last layer
    last2avg     mean of the first and the last layer
    flow-target  flow on the task's train, dev and test sentences: 1 epoch at 1e-3
    flow-avg     the same of avg, as in Table 5
    flow-train   flow on the task's train sentences
    flow-nli     flow on NLI sentences, 0.15 epoch at 2e-5, learned once for all tasks

    --row NAME with flags of run_siamese is flow-avg, changed by these flags; --flow=0 is without a
    flow. Its results are added to those in --out.

    Tasks are stsb, sickr, mrpc, qnli (Table 4: AUC on dev) and sts12 to sts16, whose flow learns on
    their scored pairs. After an interruption, repeat the command to resume.
    """
    check_local(out, "--out")
    for name in ("bert_hub", "preprocess_hub"):
        check_handle(encoder[name], name)
    chosen = _chosen_rows(rows, row, context)
    path = pathlib.Path(out, REPRODUCTION_FILE)
    lock_output(path, f"--out={out}")
    from bert_flow_tf.original.recipe import Recipe, run_stages
    from bert_flow_tf.report.reports import scores_table
    from bert_flow_tf.tasks.scored_tasks import read_tasks
    from bert_flow_tf.tasks.scores import Basis, Scores

    # Read the gold scores now; otherwise a mistake in them would show up after hours.
    read = read_tasks(names, glue_dir=glue_dir, senteval_dir=senteval_dir)
    recipe = Recipe.of(
        read.tasks[0], glue_dir=glue_dir, output_dir=out, seed=seeds[0], with_nli=nli, **encoder
    )
    plan = _plan(recipe, read.tasks, _training_folders(read.tasks, chosen, out), chosen, seeds)
    basis = Basis(
        data={task.name: task.digest for task in read.tasks},
        settings={"nli": nli, "encoder": recipe.encoder_fingerprint(), **recipe.encoder_flags},
    )
    kept = _kept_runs(path, basis, plan, adds=row is not None, overwrite=overwrite)
    # Tasks share NLI fine-tuning and the flow on NLI; run each stage once.
    stages = [*dict.fromkeys(plan.stages)]
    # A table for another program stands alone on stdout.
    with contextlib.redirect_stdout(sys.stdout if table_format == "text" else sys.stderr):
        outcomes = {one.stage: one for one in run_stages(stages, overwrite=overwrite)}
    runs = [*kept, *_scored_runs(plan, outcomes, basis)]
    record = Scores(made_by=made_by("bert-flow reproduce"), runs=runs)
    if table_format == "text":
        click.echo()
    print_table(scores_table(record, explain_paper=True, named=True), table_format)
    write_results(path, record)
    read.check_complete()


def _chosen_rows(rows: list[str] | None, own: str | None, context: click.Context) -> "list[Row]":
    """Return the presets, and the row of one's own."""
    if own is None:
        if context.args:
            known = [name for option in context.command.params for name in option.opts]
            near = suggest(context.args[0], known)
            raise click.UsageError(
                f"found {context.args[0]}, expected no other arguments without --row{near}"
            )
        return [PRESETS[name] for name in rows or _ROWS.split(",")]
    return [*(PRESETS[name] for name in rows or ()), _own_row(own, context.args)]


def _own_row(name: str, arguments: Sequence[str]) -> "OwnRow":
    from bert_flow_tf.original.command_line import given_flags
    from bert_flow_tf.original.recipe import OwnRow

    if name in PRESETS or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ArgumentError(
            f"row: found {name!r}, expected a name of its own, of letters, digits and . _ + -"
        )
    flags = given_flags(arguments)
    if others := sorted(flags.keys() - _ROW_FLAGS):
        raise ArgumentError(
            f"row: found --{others[0]}, which reproduce sets itself, expected other flags of "
            "run_siamese"
        )
    if "flow_model_config" in flags:
        flow_config(flags["flow_model_config"])
    if "sentence_embedding_type" in flags:
        check_pooling(flags["sentence_embedding_type"])
    return OwnRow(name, flags)


def _training_folders(
    tasks: "Sequence[ScoredTask]", rows: "Iterable[Row]", out: str
) -> dict[str, pathlib.Path]:
    """Return each task's folder of training data; write those of SentEval."""
    from bert_flow_tf.tasks.senteval import PREPARED_FOLDER, SUBSETS, write_full_text

    folders = {task.name: pathlib.Path(task.source) for task in tasks}
    for task in tasks:
        if task.name not in SUBSETS:
            continue
        if any(row.name == "flow-train" for row in rows):
            raise UserError(
                f"--rows: found flow-train, but {task.title} has one split only, expected "
                "other rows"
            )
        folder = folders[task.name] = pathlib.Path(out, "data", task.title)
        output_folder(folder, PREPARED_FOLDER, overwrite=True, flag=f"--out={out}: {folder}")
        write_full_text(folder, task.subsets.values(), task.source)
    return folders


class _Plan(NamedTuple):
    """The stages, and those that score a task and row, by seed."""

    stages: "list[Stage]"
    scored: "dict[str, dict[str, list[Stage]]]"


def _plan(
    recipe: "Recipe",
    tasks: "Sequence[ScoredTask]",
    folders: Mapping[str, pathlib.Path],
    rows: "Sequence[Row]",
    seeds: Sequence[int],
) -> _Plan:
    plan = _Plan([], {task.name: {} for task in tasks})
    for seed, task in itertools.product(seeds, tasks):
        seeded = recipe._replace(seed=seed, folder=folders[task.name], task=task)
        plan.stages.extend(seeded.nli())
        for row in rows:
            # Without training the seed has no effect.
            if recipe.with_nli or row.trains or seed == min(seeds):
                stages = seeded.row(row)
                plan.stages.extend(stages)
                plan.scored[task.name].setdefault(row.name, []).append(stages[-1])
    return plan


def _scored_runs(
    plan: _Plan, outcomes: "Mapping[Stage, Outcome]", basis: "Basis"
) -> "Iterator[ScoredRun]":
    """Yield the scores of each planned row by task and seed."""
    for rows in plan.scored.values():
        for name, stages in rows.items():
            for stage in stages:
                scores = outcomes[stage].scores
                assert scores is not None, "every stage of a row predicts"
                yield msgspec.structs.replace(
                    scores,
                    name=name,
                    seed=stage.settings.training.seed,
                    settings=dict(basis.settings),
                )


def _kept_runs(
    path: pathlib.Path, basis: "Basis", plan: _Plan, *, adds: bool, overwrite: bool
) -> "list[ScoredRun]":
    """Return the earlier scores that stay beside the planned ones.

    They are scores of other rows; the planned ones are added to them.

    Raises:
      UserError: earlier scores have another basis, or would be lost, and `overwrite` is false.
    """
    from bert_flow_tf.tasks.scores import Scores

    if not path.exists() or (overwrite and not adds):
        return []
    earlier = read_json(path, Scores, expected="results of reproduce, or --overwrite").runs
    differing = dict.fromkeys(words for run in earlier for words in basis.differences(run))
    if differing and not overwrite:
        raise UserError(
            f"--out={path.parent}: found results of something else ({'; '.join(differing)}), "
            "expected the same; use another folder, or --overwrite"
        )
    planned = {
        (task, row): len(stages)
        for task, rows in plan.scored.items()
        for row, stages in rows.items()
    }
    counts = collections.Counter((task, run.name) for run in earlier for task in run.tasks)
    lost = {
        row
        for (task, row), count in counts.items()
        if (not adds or (task, row) in planned) and count > planned.get((task, row), 0)
    }
    if not overwrite and lost:
        raise UserError(
            f"--out={path.parent}: found runs of {', '.join(sorted(lost))}, which this command "
            f"would drop; `bert-flow report --runs {path.parent}` shows them, another folder keeps "
            "them, and --overwrite drops them"
        )
    if differing:
        return []
    return [
        run for run in earlier if planned.keys().isdisjoint((task, run.name) for task in run.tasks)
    ]
