"""`bert-flow reproduce`: rows of the paper's tables, trained and scored over seeds."""

import json
import os
import pathlib
import sys

import click

from bert_flow_tf.commands.model_options import run_record
from bert_flow_tf.commands.results import check_writable, versions, write_results
from bert_flow_tf.commands.seeds import parse_seeds
from bert_flow_tf.commands.task_option import require_gold, task_option
from bert_flow_tf.errors import UserError

RESULTS_FILE = "reproduction.json"
FORMAT_VERSION = 1


@click.command()
@click.option("--rows", default="avg,last2avg,flow-target", show_default=True, metavar="LIST", help="Rows, see above.")
@click.option("--seeds", default="1", show_default=True, metavar="N|LIST", help="How many seeds, 1 to N, or a list.")
@click.option("--nli", is_flag=True, help="Fine-tune on NLI first (Table 3): 1 epoch, 2e-5, batches of 16.")
@click.option("--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, large, a TF-Hub handle or a folder.")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub, where it does not tell.")
@click.option("--bert_premodels", metavar="DIR", help="Folder of TF1 BERT checkpoints, instead of --bert_hub.")
@click.option("--bert_name", type=click.Choice(["base", "large", "large-wwm"]), help="Checkpoint in --bert_premodels.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder of STS-B, and of MNLI and SNLI for --nli.")
@task_option("Task to learn on and to score.")
@click.option("--out", required=True, metavar="DIR", help="Folder of all runs and of the results; begun ones go on.")
@click.option("--overwrite", is_flag=True, help="Do everything again.")
def reproduce(rows, seeds, nli, glue_dir, task, out, overwrite, **encoder):
    """Train and score rows of Tables 2, 3 and 8, each with several seeds.

    \b
    bert-flow reproduce --bert_premodels premodels --bert_name base --glue_dir glue_data \\
        --rows avg,last2avg,flow-target,flow-train,flow-nli --seeds 5 --out runs/table2
    bert-flow reproduce --bert_hub demo --glue_dir glue_data --rows flow-target --seeds 5 --out runs/seeds

    \b
    avg          the encoder, mean of the last layer
    last2avg     the encoder, first and last layer's means
    flow-target  a flow on the task's train, dev and test sentences: 1 epoch at 1e-3
    flow-train   a flow on its train sentences
    flow-nli     a flow on NLI sentences, 0.15 epoch at 2e-5

    An interrupted command goes on where it was; what is finished is not done again. The table and
    OUT/reproduction.json have mean, standard deviation and median over seeds, and the paper's figure beside them where
    the encoder is the paper's.
    """
    from bert_flow_tf import recipe as recipes
    from bert_flow_tf.evaluation.presets import get_presets, stages_of_presets

    presets = get_presets([name.strip() for name in rows.split(",") if name.strip()])
    seeds = parse_seeds(seeds)
    environ = _environment(encoder, glue_dir=glue_dir, task=task, out=out, nli=nli)
    _check_kept(pathlib.Path(out) / RESULTS_FILE, presets, seeds, environ, overwrite)
    runs = []
    for seed in seeds:
        recipe = recipes.read_environment({**environ, "RANDOM_SEED": str(seed)})
        # Where nothing is trained, no seed plays a part.
        needed = [preset for preset in presets if nli or preset.flow is not None or seed == seeds[0]]
        runs.append((recipe, *stages_of_presets(recipe, needed)))
    done = {preset.name: [] for preset in presets}
    for seed, (recipe, stages, scored) in zip(seeds, runs, strict=True):
        if not stages:
            continue
        click.echo(f"seed {seed}")
        try:
            with recipes.ended_by_sigterm():
                stamps = recipes.run(recipe, stages, overwrite=overwrite)
        except recipes.StageFailed as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.status)
        stamp_of = dict(zip((stage.name for stage in stages), stamps, strict=True))
        for name, stage in scored.items():
            done[name].append((seed, stage, stamp_of[stage.name]))
    record = _record(runs[0][0], presets, seeds, done)
    click.echo(f"\n{format_table(record)}")
    write_results(pathlib.Path(out) / RESULTS_FILE, record)


def format_table(record):
    """The rows as text: Spearman x100 on the test split, mean, deviation and median over seeds, and the paper's."""
    from bert_flow_tf.evaluation.text_table import aligned

    lines = [("row", "mean", "std", "median", "paper")]
    for name, row in record["rows"].items():
        figures = row["spearman"]
        paper = row["paper"]
        lines.append(
            (
                name,
                f"{100 * figures['mean']:.2f}",
                "-" if figures["std"] is None else f"{100 * figures['std']:.2f}",
                f"{100 * figures['median']:.2f}",
                "-" if paper is None else f"{paper['spearman_x100']:.2f}",
            )
        )
    seeds = ", ".join(map(str, record["seeds"]))
    return f"{record['task']} test, Spearman x100, {record['encoder']}, seeds {seeds}\n{aligned(lines)}"


def _environment(encoder, *, glue_dir, task, out, nli):
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
        raise UserError(f"--glue_dir={glue_dir}: no such folder, expected the one that holds {task.directory}")
    require_gold(task, ["test"])
    check_writable(pathlib.Path(out) / RESULTS_FILE, f"--out={out}")
    variables = {name.upper(): value for name, value in encoder.items() if value}
    return variables | {
        "GLUE_DIR": glue_dir,
        "TASK_NAME": task.directory,
        "OUTPUT_PARENT_DIR": out,
        "SKIP_NLI": "0" if nli else "1",
    }


def _check_kept(path, presets, seeds, environ, overwrite):
    """Refuses to replace results that hold other rows or seeds than those that are asked for."""
    if overwrite or not path.exists():
        return
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        held = {
            "--task": {earlier["task"]} - {environ["TASK_NAME"]},
            "--rows": set(earlier["rows"]) - {preset.name for preset in presets},
            "--seeds": {str(seed) for seed in earlier["seeds"]} - {str(seed) for seed in seeds},
            "--nli": {"with NLI" if earlier["with_nli"] else "without NLI"}
            - {"with NLI" if environ["SKIP_NLI"] == "0" else "without NLI"},
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: found no results of `reproduce`, expected them, or --overwrite") from error
    for flag, lost in held.items():
        if lost:
            raise UserError(
                f"{flag}: {path} holds {', '.join(sorted(lost))} as well, which would be lost; expected the same, "
                "another --out, or --overwrite"
            )


def _record(recipe, presets, seeds, done):
    from bert_flow_tf.evaluation.paper import paper_tables
    from bert_flow_tf.evaluation.presets import paper_row
    from bert_flow_tf.evaluation.report_settings import encoder_name

    tables = paper_tables()
    # Not by the last name of any folder: `encoders/base` may hold another encoder than the paper's.
    hub = recipe.encoder_flags.get("bert_hub")
    encoder = encoder_name(hub) if hub else recipe.encoder_name
    return {
        "format_version": FORMAT_VERSION,
        "encoder": recipe.encoder_name,
        "encoder_flags": dict(recipe.encoder_flags),
        "with_nli": recipe.with_nli,
        "task": recipe.task_name,
        "data": str(recipe.glue_dir),
        "protocol": "cosine; all pairs of the test split",
        "seeds": seeds,
        "rows": {
            preset.name: {
                **_row(done[preset.name]),
                "paper": paper_row(preset, encoder, recipe.with_nli, recipe.task_name, tables),
            }
            for preset in presets
        },
        "versions": versions(),
    }


def _row(done):
    """Scores over the seeds of (seed, stage, stamp), the settings of the first, and what each seed's run is."""
    from bert_flow_tf.evaluation.presets import summarize
    from bert_flow_tf.experiment import read_config
    from bert_flow_tf.recipe import latest_checkpoint

    scores = {metric: summarize([stamp[metric] for _, _, stamp in done]) for metric in ("spearman", "pearson")}
    runs, model = [], None
    for seed, stage, _ in done:
        # Where nothing is trained there are scores, but no run.
        config = read_config(stage.run_dir)
        run = run_record(pathlib.Path(latest_checkpoint(stage.run_dir))) if config else None
        runs.append({"seed": seed, "directory": str(stage.run_dir), "run": run})
        if config and model is None:
            names = ("encoder", "sentence_embedding_type", "max_seq_length", "low_dim", "flow_config")
            model = {name: config[name] for name in names}
    return scores | {"settings": dict(done[0][1].settings), "model": model, "runs": runs}
