"""`bert-flow reproduce`: rows of the paper's tables, trained and scored over seeds."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.options import SENTEVAL_OPTION, name_list, seed_list
from bert_flow_tf.commands.outputs import own, write_results
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.errors import UserError, nearest
from bert_flow_tf.paper.presets import PRESETS
from bert_flow_tf.results.records import REPRODUCTION_FILE

if TYPE_CHECKING:
    from bert_flow_tf.data.sts_sets import SimilarityTask
    from bert_flow_tf.recipe.stages import Run, Target

_TASKS = ("stsb", "sickr", "mrpc", "qnli", "sts12", "sts13", "sts14", "sts15", "sts16")


@click.command()
@click.option(
    "--rows",
    callback=name_list(PRESETS),
    default="avg,last2avg,flow-target",
    metavar="LIST",
    help="Rows, see above.",
)
@click.option("--seeds", callback=seed_list, default="1", metavar="N|LIST", help="How many seeds, 1 to N, or a list.")
@click.option("--nli", is_flag=True, help="Fine-tune on NLI first (Table 3): 1 epoch, 2e-5, batches of 16.")
@click.option("--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, large, a TF-Hub handle or a folder.")
@click.option(
    "--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub, where it cannot be derived from it."
)
@click.option("--bert_premodels", metavar="DIR", help="Folder of TF1 BERT checkpoints, instead of --bert_hub.")
@click.option("--bert_name", type=click.Choice(["base", "large", "large-wwm"]), help="Checkpoint in --bert_premodels.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder of STS-B, …, and of MNLI and SNLI for NLI.")
@SENTEVAL_OPTION
@click.option("--tasks", "names", callback=name_list(), default="stsb", metavar="LIST", help="Tasks, see above.")
@click.option(
    "--out", required=True, metavar="DIR", help="Folder of all runs and of the results; unfinished runs are resumed."
)
@click.option("--overwrite", is_flag=True, help="Do everything again.")
@click.option("--verbose", is_flag=True, help="Show each stage's command and all that it prints.")
def reproduce(
    rows: list[str],
    seeds: list[int],
    nli: bool,
    glue_dir: str,
    senteval_dir: str | None,
    names: list[str],
    out: str,
    overwrite: bool,
    verbose: bool,
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
    # The libraries take seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.data.sts_sets import read_tasks, task_key
    from bert_flow_tf.recipe.reproduction import Row, reproduction_record
    from bert_flow_tf.recipe.run import run
    from bert_flow_tf.recipe.stages import encoder_of, read_environment
    from bert_flow_tf.report.tables import rows_table
    from bert_flow_tf.results.rows import beside_baselines, reproduction_rows

    for name in names:
        if task_key(name) not in _TASKS:
            raise UserError(
                f"--tasks: unknown task {name!r}, expected some of {', '.join(_TASKS)}{nearest(name, _TASKS)}"
            )
    presets, folder = [PRESETS[row] for row in rows], pathlib.Path(out)
    environ = _environment(encoder, glue_dir=glue_dir, out=folder, nli=nli)
    # With their gold scores, which are used last and are not to be missed after hours.
    tasks = read_tasks(names, glue_dir=glue_dir, senteval_dir=senteval_dir)
    if (folder / REPRODUCTION_FILE).exists() and not overwrite:
        _check_kept(folder / REPRODUCTION_FILE, rows, seeds, tasks, encoder_of(environ)[1], nli)
    targets = _targets(tasks, rows, glue_dir, folder, overwrite)
    stages: list[Run] = []
    scored: list[Row] = []
    for seed in seeds:
        # Where nothing is trained, no seed plays a part.
        needed = [preset for preset in presets if nli or preset.flow is not None or seed == min(seeds)]
        note = f", seed {seed}" if len(seeds) > 1 else ""
        for target in targets:
            recipe = read_environment({**environ, "RANDOM_SEED": str(seed)}, target)
            made = {preset.name: recipe.preset(preset) for preset in needed}
            planned = [*recipe.nli(), *(stage for of_row in made.values() for stage in of_row)]
            stages += [dataclasses.replace(stage, title=stage.title + note) for stage in planned]
            scored += [Row(target.task, name, seed, of_row[-1]) for name, of_row in made.items() if target.task]
    # NLI fine-tuning and the flow on NLI are those of every task.
    run([*dict.fromkeys(stages)], overwrite=overwrite, verbose=verbose)
    record = reproduction_record(recipe, scored)
    nli_note = ", fine-tuned on NLI" if nli else ""
    title = f"x100, {record.encoder}{nli_note}, seeds {', '.join(map(str, seeds))}"
    click.echo(f"\n{rows_table(beside_baselines([*reproduction_rows(record)]), title=title).to_text()}")
    write_results(folder / REPRODUCTION_FILE, record)


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
    check_handle(encoder["bert_hub"], "bert_hub")
    check_handle(encoder["preprocess_hub"], "preprocess_hub")
    if not os.path.isdir(glue_dir):
        raise UserError(f"--glue_dir={glue_dir}: no such folder, expected the one that holds the tasks' folders")
    own(out / REPRODUCTION_FILE, f"--out={out}")
    variables = {name.upper(): value for name, value in encoder.items() if value}
    return variables | {"GLUE_DIR": glue_dir, "OUTPUT_PARENT_DIR": str(out), "SKIP_NLI": "0" if nli else "1"}


def _targets(
    tasks: Sequence["SimilarityTask"], rows: Sequence[str], glue_dir: str, out: pathlib.Path, overwrite: bool
) -> "list[Target]":
    """The tasks' targets, after writing what SentEval's tasks learn on.

    Raises:
      UserError: a row that a task has no sentences for.
    """
    from bert_flow_tf.data.folders import keep_full_text
    from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS, glue_task
    from bert_flow_tf.recipe.stages import Target

    targets = []
    for task in tasks:
        if task.name not in SENTEVAL_SUBSETS:
            directory = glue_task(task.name).directory
            targets.append(Target(directory, pathlib.Path(glue_dir) / directory, task))
            continue
        if "flow-train" in rows:
            raise UserError(f"--rows: found flow-train, but {task.title} has one split only, expected other rows")
        folder = out / "data" / task.title
        keep_full_text(folder, task.subsets, task.source, flag="--out", overwrite=overwrite)
        targets.append(Target(task.title, folder, task))
    return targets


def _check_kept(
    path: pathlib.Path,
    rows: Sequence[str],
    seeds: Sequence[int],
    tasks: Sequence["SimilarityTask"],
    encoder_flags: Mapping[str, str],
    nli: bool,
) -> None:
    """Refuses to replace results of another encoder or of other data, rows, seeds or tasks than are asked for."""
    from bert_flow_tf.files.json_files import read_json
    from bert_flow_tf.results.records import Reproduction

    try:
        earlier = read_json(path, Reproduction, expected="results of reproduce")
    except UserError as error:
        raise UserError(f"{path}: found no results of reproduce, expected them, or --overwrite ({error})") from error
    with_nli = {True: "an encoder after NLI", False: "an encoder without NLI"}
    flags, new_flags = (
        {f"--{name}={value}" for name, value in one.items()} for one in (earlier.encoder_flags, encoder_flags)
    )
    data = {name: f"{task.pairs} pairs of {task.source}" for name, task in earlier.tasks.items()}
    new = {task.name: f"{sum(map(len, task.subsets))} pairs of {task.source}" for task in tasks}
    held = {
        "--bert_hub": flags - new_flags,
        "--tasks": set(data) - set(new),
        "--glue_dir": {data[name] for name in data.keys() & new.keys()} - set(new.values()),
        "--rows": {name for task in earlier.tasks.values() for name in task.rows} - set(rows),
        "--seeds": {str(seed) for seed in earlier.seeds} - {str(seed) for seed in seeds},
        "--nli": {with_nli[earlier.with_nli]} - {with_nli[nli]},
    }
    for flag, lost in held.items():
        if lost:
            raise UserError(
                f"{flag}: {path} holds results of {', '.join(sorted(lost))}, which would be lost; expected the same, "
                "another --out, or --overwrite"
            )
