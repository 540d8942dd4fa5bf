"""`bert-flow reproduce`: rows of the paper's tables, trained and scored over seeds."""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.options import Seeds
from bert_flow_tf.commands.outputs import write_results
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.outputs import check_writable
from bert_flow_tf.results.table import METRIC_NAMES, Table, number

if TYPE_CHECKING:
    from bert_flow_tf.data.sts_sets import SimilarityTask
    from bert_flow_tf.paper.presets import Preset
    from bert_flow_tf.recipe.preset_stages import PresetStages
    from bert_flow_tf.recipe.stages import Recipe, Stage, Target
    from bert_flow_tf.results.records import Reproduction

RESULTS_FILE = "reproduction.json"
_TASKS = ("stsb", "sickr", "mrpc", "qnli", "sts12", "sts13", "sts14", "sts15", "sts16")


@click.command()
@click.option("--rows", default="avg,last2avg,flow-target", show_default=True, metavar="LIST", help="Rows, see above.")
@click.option(
    "--seeds",
    type=Seeds(),
    default="1",
    show_default=True,
    metavar="N|LIST",
    help="How many seeds, 1 to N, or a list.",
)
@click.option("--nli", is_flag=True, help="Fine-tune on NLI first (Table 3): 1 epoch, 2e-5, batches of 16.")
@click.option("--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, large, a TF-Hub handle or a folder.")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub, where it does not tell.")
@click.option("--bert_premodels", metavar="DIR", help="Folder of TF1 BERT checkpoints, instead of --bert_hub.")
@click.option("--bert_name", type=click.Choice(["base", "large", "large-wwm"]), help="Checkpoint in --bert_premodels.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder of STS-B, …, and of MNLI and SNLI for NLI.")
@click.option("--senteval_dir", metavar="DIR", help="SentEval's folder that holds STS/STS12-en-test and so on.")
@click.option("--tasks", "names", default="stsb", show_default=True, metavar="LIST", help="Tasks, see above.")
@click.option("--out", required=True, metavar="DIR", help="Folder of all runs and of the results; begun ones go on.")
@click.option("--overwrite", is_flag=True, help="Do everything again.")
def reproduce(
    rows: str,
    seeds: list[int],
    nli: bool,
    glue_dir: str,
    senteval_dir: str | None,
    names: str,
    out: str,
    overwrite: bool,
    **encoder: str | None,
) -> None:
    """Train and score rows of Tables 2, 3, 4 and 8, each with several seeds.

    \b
    bert-flow reproduce --bert_premodels premodels --bert_name base --glue_dir glue_data \\
        --senteval_dir SentEval/data --tasks stsb,sickr,sts12,sts13,sts14,sts15,sts16 \\
        --rows avg,last2avg,flow-nli,flow-target --out runs/table2
    bert-flow reproduce --bert_hub demo --glue_dir glue_data --rows flow-target --seeds 5 --out runs/seeds

    \b
    avg          the encoder, mean of the last layer
    last2avg     the encoder, first and last layer's means
    flow-target  a flow on the task's train, dev and test sentences: 1 epoch at 1e-3
    flow-train   a flow on its train sentences
    flow-nli     a flow on NLI sentences, 0.15 epoch at 2e-5, learned once for all tasks

    Tasks are stsb, sickr, mrpc, qnli (Table 4: AUC on dev) and sts12 to sts16 (the mean over their sets weighted by
    size). A flow on the target of sts12 to sts16 learns on their scored pairs, which are written to OUT/data; as in the
    original, each of the three splits is all of them.

    Rerun the same command to resume an interrupted one; what is finished is not done again. The table and
    OUT/reproduction.json have mean, standard deviation and median over seeds, and beside them the figures of the paper
    (and its Table 8) and of the original code where encoder, data and training are the same.
    """
    presets, task_names = _presets(rows), _names(names)
    folder = pathlib.Path(out)
    environ = _environment(encoder, glue_dir=glue_dir, out=folder, nli=nli)
    tasks = _read_tasks(task_names, glue_dir, senteval_dir)
    _check_kept(folder / RESULTS_FILE, presets, seeds, tasks, nli, environ, overwrite)
    targets = _targets(tasks, presets, glue_dir, folder, overwrite)
    done: dict[str, dict[str, list]] = {task.name: {preset.name: [] for preset in presets} for task in tasks}
    stages: dict[str, Stage] = {}
    for seed in seeds:
        recipe, planned, of_task = _plan(environ, seed, presets, targets, only_random=not nli and seed != min(seeds))
        note = f", seed {seed}" if len(seeds) > 1 else ""
        stages |= {name: dataclasses.replace(stage, title=stage.title + note) for name, stage in planned.items()}
        for name, of_preset in of_task.items():
            for preset, made in of_preset.items():
                done[name][preset].append((seed, made))
    # All seeds at once: what cannot be resumed is refused before the first, and an interrupted --overwrite knows all
    # that is old.
    _run(list(stages.values()), folder, overwrite)
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.recipe.reproduction import reproduction_record

    record = reproduction_record(recipe, nli, tasks, seeds, done)
    click.echo(f"\n{rows_table(record).to_text()}")
    write_results(folder / RESULTS_FILE, record)


def rows_table(record: "Reproduction") -> Table:
    """The rows, task by task: mean, deviation and median over seeds of the score x100 on the test split.

    Beside them stand the figures of the paper and of the original's code, each where there is one to compare with.
    """
    rows = []
    for task in record.tasks.values():
        for name, row in task.rows.items():
            scores = getattr(row, task.metric)
            seeds, paper, original = row.paper_seeds, row.paper, row.original
            rows.append(
                (
                    task.title,
                    " ".join(filter(None, (METRIC_NAMES[task.metric], task.protocol))),
                    name,
                    number(100 * scores.mean),
                    number(None if scores.std is None else 100 * scores.std),
                    number(100 * scores.median),
                    number(paper["mean_x100"] if paper else None),
                    number(seeds["mean_x100"], spread=seeds["std_x100"]) if seeds else None,
                    number(original["mean_x100"] if original else None),
                )
            )
    nli = ", fine-tuned on NLI" if record.with_nli else ""
    return Table(
        ("task", "metric", "row", "mean", "std", "median", "paper", "Table 8", "TF1 code"),
        rows,
        title=f"x100, {record.encoder}{nli}, seeds {', '.join(map(str, record.seeds))}",
    )


def _presets(rows: str) -> list["Preset"]:
    from bert_flow_tf.paper.presets import PRESETS

    names = [name.strip() for name in rows.split(",") if name.strip()]
    for name in names:
        if name not in PRESETS:
            raise UserError(f"--rows: found {name}, expected some of {', '.join(PRESETS)}")
        if names.count(name) > 1:
            raise UserError(f"--rows: found {name} twice, expected each once")
    if not names:
        raise UserError(f"--rows: found none, expected some of {', '.join(PRESETS)}")
    return [PRESETS[name] for name in names]


def _names(text: str) -> list[str]:
    """The tasks as `evaluate` names them, each once."""
    from bert_flow_tf.data.sts_sets import task_key

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError("--tasks: found none, expected some, commas between")
    keys = []
    for name in names:
        key = task_key(name)
        if key not in _TASKS:
            raise UserError(f"--tasks: unknown task {name!r}, expected some of {', '.join(_TASKS)}")
        if key in keys:
            raise UserError(f"--tasks: {name} names {key} once more, expected every task once")
        keys.append(key)
    return keys


def _environment(encoder: Mapping[str, str | None], *, glue_dir: str, out: pathlib.Path, nli: bool) -> dict[str, str]:
    """The recipe's variables that the flags stand for."""
    if not encoder["bert_hub"] and not encoder["bert_premodels"]:
        raise UserError("--bert_hub: missing, expected an encoder, or --bert_premodels and --bert_name")
    for flag, other in (
        ("bert_premodels", "bert_hub"),
        ("bert_name", "bert_hub"),
        ("preprocess_hub", "bert_premodels"),
    ):
        if encoder[flag] and encoder[other]:
            raise UserError(f"--{flag}: found it with --{other}, expected one of them")
    if not os.path.isdir(glue_dir):
        raise UserError(f"--glue_dir={glue_dir}: no such folder, expected the one that holds the tasks' folders")
    check_writable(out / RESULTS_FILE, f"--out={out}")
    variables = {name.upper(): value for name, value in encoder.items() if value}
    return variables | {"GLUE_DIR": glue_dir, "OUTPUT_PARENT_DIR": str(out), "SKIP_NLI": "0" if nli else "1"}


def _read_tasks(names: Sequence[str], glue_dir: str, senteval_dir: str | None) -> list["SimilarityTask"]:
    """The `SimilarityTask`s with their gold scores: these come last, and are not to be missed after hours."""
    from bert_flow_tf.data.sts_sets import read_task

    return [read_task(name, glue_dir=glue_dir, senteval_dir=senteval_dir) for name in names]


def _targets(
    tasks: Sequence["SimilarityTask"], presets: Sequence["Preset"], glue_dir: str, out: pathlib.Path, overwrite: bool
) -> dict[str, "Target"]:
    """dict of task name -> `Target`, after writing what SentEval's tasks learn on.

    Raises:
      UserError: a row that a task has no sentences for.
    """
    from bert_flow_tf.data.folders import keep_full_text
    from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS, glue_task
    from bert_flow_tf.recipe.stages import Target

    targets = {}
    for task in tasks:
        if task.name not in SENTEVAL_SUBSETS:
            directory = glue_task(task.name).directory
            targets[task.name] = Target(directory, pathlib.Path(glue_dir) / directory, task.split)
            continue
        if any(preset.name == "flow-train" for preset in presets):
            raise UserError(f"--rows: found flow-train, but {task.title} has one split only, expected other rows")
        folder = out / "data" / task.title
        keep_full_text(folder, task.subsets, task.source, overwrite=overwrite)
        targets[task.name] = Target(task.title, folder, task.split, has_gold=False)
    return targets


def _plan(
    environ: Mapping[str, str],
    seed: int,
    presets: Sequence["Preset"],
    targets: Mapping[str, "Target"],
    *,
    only_random: bool,
) -> tuple["Recipe", dict[str, "Stage"], dict[str, dict[str, "PresetStages"]]]:
    """A recipe, all stages of a seed by name in their order, and `PresetStages` by task and preset.

    Where nothing is trained, no seed plays a part: `only_random` leaves these rows out.
    """
    from bert_flow_tf.recipe.environment import read_environment
    from bert_flow_tf.recipe.preset_stages import stages_of_presets

    stages: dict[str, Stage] = {}
    of_task = {}
    needed = [preset for preset in presets if preset.flow is not None or not only_random]
    recipes = {name: read_environment({**environ, "RANDOM_SEED": str(seed)}, one) for name, one in targets.items()}
    for name, recipe in recipes.items():
        made, of_task[name] = stages_of_presets(recipe, needed)
        # NLI fine-tuning and the flow on NLI are those of every task.
        stages |= {stage.name: stage for stage in made}
    return next(iter(recipes.values())), stages, of_task


def _run(stages: Sequence["Stage"], out: pathlib.Path, overwrite: bool) -> None:
    from bert_flow_tf.recipe import run as recipes

    try:
        with recipes.ended_by_sigterm():
            recipes.run(stages, out, overwrite=overwrite)
    except recipes.StageFailed as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.status)


def _check_kept(
    path: pathlib.Path,
    presets: Sequence["Preset"],
    seeds: Sequence[int],
    tasks: Sequence["SimilarityTask"],
    nli: bool,
    environ: Mapping[str, str],
    overwrite: bool,
) -> None:
    """Refuses to replace results of another encoder or of other data, rows, seeds or tasks than are asked for."""
    if overwrite or not path.exists():
        return
    from bert_flow_tf.files.json_files import read_json
    from bert_flow_tf.recipe.environment import encoder_of
    from bert_flow_tf.results.records import Reproduction

    with_nli = {True: "an encoder after NLI", False: "an encoder without NLI"}
    try:
        earlier = read_json(path, Reproduction, expected="results of `reproduce`")
    except UserError as error:
        raise UserError(f"{path}: found no results of `reproduce`, expected them, or --overwrite ({error})") from error
    data = {name: f"{task.pairs} pairs of {task.source}" for name, task in earlier.tasks.items()}
    new = {task.name: f"{sum(map(len, task.subsets))} pairs of {task.source}" for task in tasks}
    held = {
        "--bert_hub": _words(earlier.encoder_flags) - _words(encoder_of(environ)[1]),
        "--tasks": set(data) - set(new),
        "--glue_dir": {data[name] for name in data.keys() & new.keys()} - set(new.values()),
        "--rows": {name for task in earlier.tasks.values() for name in task.rows} - {preset.name for preset in presets},
        "--seeds": {str(seed) for seed in earlier.seeds} - {str(seed) for seed in seeds},
        "--nli": {with_nli[earlier.with_nli]} - {with_nli[nli]},
    }
    for flag, lost in held.items():
        if lost:
            raise UserError(
                f"{flag}: {path} holds results of {', '.join(sorted(lost))}, which would be lost; expected the same, "
                "another --out, or --overwrite"
            )


def _words(flags: Mapping[str, str]) -> set[str]:
    return {f"--{name}={value}" for name, value in flags.items()}
