"""`bert-flow reproduce`: rows of the paper's tables, trained and scored over seeds."""

import itertools
import pathlib
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.options import (
    SENTEVAL_OPTION,
    check_one_of,
    name_list,
    seed_list,
    task_list,
)
from bert_flow_tf.commands.outputs import lock_output, write_results
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import output_folder
from bert_flow_tf.files.reading import check_local
from bert_flow_tf.original.paper import PRESETS
from bert_flow_tf.original.records import REPRODUCTION_FILE, Reproduction
from bert_flow_tf.records import made_by

if TYPE_CHECKING:
    from bert_flow_tf.original.recipe import Stage

_ROWS = "avg,last2avg,flow-target"
_TASKS = ("stsb", "sickr", "mrpc", "qnli", "sts12", "sts13", "sts14", "sts15", "sts16")


@click.command(
    epilog="\b\nbert-flow reproduce --bert_hub demo --glue_dir glue_data --seeds 5 --out five_seeds"
)
@click.option(
    "--rows", callback=name_list(PRESETS), default=_ROWS, metavar="LIST", help="Rows, see above."
)
@click.option(
    "--seeds", callback=seed_list, default="1", metavar="N|LIST", help="Seeds 1 to N, or a list."
)
@click.option("--nli", is_flag=True, help="Fine-tune on NLI first (Table 3).")
@click.option("--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, a handle or a folder.")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub.")
@click.option("--bert_premodels", metavar="DIR", help="TF1 BERT checkpoints instead of --bert_hub.")
@click.option(
    "--bert_name",
    type=click.Choice(["base", "large", "large-wwm"]),
    help="Checkpoint in --bert_premodels.",
)
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder of STS-B, MNLI, SNLI, …")
@SENTEVAL_OPTION
@click.option(
    "--tasks",
    "names",
    callback=task_list(_TASKS),
    default="stsb",
    metavar="LIST",
    help="Tasks, see above.",
)
@click.option("--out", required=True, metavar="DIR", help="Folder of runs and results.")
@click.option("--overwrite", is_flag=True, help="Run every stage again.")
def reproduce(
    rows: list[str],
    seeds: list[int],
    nli: bool,
    glue_dir: str,
    senteval_dir: str | None,
    names: list[str],
    out: str,
    overwrite: bool,
    **encoder: str | None,
) -> None:
    """Reproduce rows of the paper's Tables 2 to 4 and 8.

    \b
    avg          mean of the last layer
    last2avg     mean of the first and the last layer
    flow-target  flow on the task's train, dev and test sentences: 1 epoch at 1e-3
    flow-avg     the same of avg, as in Table 5
    flow-train   flow on the task's train sentences
    flow-nli     flow on NLI sentences, 0.15 epoch at 2e-5, learned once for all tasks

    Tasks are stsb, sickr, mrpc, qnli (Table 4: AUC on dev) and sts12 to sts16, whose flow learns on
    their scored pairs. After an interruption, repeat the command to resume.
    """
    check_local(out, "--out")
    check_one_of({name: encoder[name] for name in ("bert_hub", "bert_premodels")})
    for name in ("bert_hub", "preprocess_hub"):
        check_handle(encoder[name], name)
    path = pathlib.Path(out, REPRODUCTION_FILE)
    lock_output(path, f"--out={out}")
    from bert_flow_tf.data.scored_tasks import read_tasks
    from bert_flow_tf.data.senteval import PREPARED_FOLDER, SUBSETS, write_full_text
    from bert_flow_tf.files.json_files import read_json
    from bert_flow_tf.original.recipe import Recipe, run_stages, seed_runs
    from bert_flow_tf.original.reports import scores_table

    # Read the gold scores now; otherwise a mistake in them would show up after hours.
    read = read_tasks(names, glue_dir=glue_dir, senteval_dir=senteval_dir)
    tasks = read.tasks
    recipe = Recipe.of(
        tasks[0], glue_dir=glue_dir, output_dir=out, seed=seeds[0], with_nli=nli, **encoder
    )
    folders = {task.name: pathlib.Path(task.source) for task in tasks}
    for task in tasks:
        if task.name in SUBSETS:
            if "flow-train" in rows:
                raise UserError(
                    f"--rows: found flow-train, but {task.title} has one split only, expected "
                    "other rows"
                )
            folder = folders[task.name] = pathlib.Path(out, "data", task.title)
            output_folder(folder, PREPARED_FOLDER, overwrite=True, flag=f"--out={out}: {folder}")
            write_full_text(folder, task.subsets.values(), task.source)
    stages: list[Stage] = []
    scored: dict[str, dict[str, list[Stage]]] = {task.name: {} for task in tasks}
    for seed, task in itertools.product(seeds, tasks):
        recipe = recipe._replace(seed=seed, folder=folders[task.name], task=task)
        stages += recipe.nli()
        for row in rows:
            # Without training the seed has no effect.
            if nli or PRESETS[row].flow is not None or seed == min(seeds):
                stages += recipe.preset(PRESETS[row])
                scored[task.name].setdefault(row, []).append(stages[-1])
    flags = recipe.encoder_flags
    if path.exists() and not overwrite:
        earlier = read_json(path, Reproduction, expected="results of reproduce, or --overwrite")
        found = [
            (len(runs), name, row)
            for name, rows_of in earlier.tasks.items()
            for row, runs in rows_of.items()
        ]
        loses_runs = any(runs > len(scored.get(name, {}).get(row, ())) for runs, name, row in found)
        if loses_runs or (earlier.encoder_flags, earlier.with_nli) != (flags, nli):
            raise UserError(
                f"--out={out}: found results of other options, expected the same options or "
                "--overwrite"
            )
    # Tasks share NLI fine-tuning and the flow on NLI; run each stage once.
    outcomes = {one.stage: one for one in run_stages([*dict.fromkeys(stages)], overwrite=overwrite)}
    results = {
        name: {
            row: [*seed_runs(outcomes[stage] for stage in row_stages)]
            for row, row_stages in rows.items()
        }
        for name, rows in scored.items()
    }
    record = Reproduction(
        made_by=made_by("bert-flow reproduce"),
        encoder=recipe.encoder_name,
        encoder_flags=flags,
        with_nli=nli,
        seeds=sorted(seeds),
        tasks=results,
    )
    click.echo(f"\n{scores_table(record, explain_paper=True).to_text()}")
    write_results(path, record)
    read.check_complete()
