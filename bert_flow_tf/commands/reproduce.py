"""`bert-flow reproduce`: rows of the paper's tables, trained and scored over seeds."""

import json
import os
import pathlib
import sys

import click

from bert_flow_tf.commands.calibrate import parse_seeds
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
@click.option("--task", default="STS-B", show_default=True, metavar="NAME", help="Task to learn on and to score.")
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
    runs = []
    for seed in seeds:
        recipe = recipes.read_environment({**environ, "RANDOM_SEED": str(seed)})
        # Where nothing is trained, no seed plays a part.
        needed = [preset for preset in presets if nli or preset.flow is not None or seed == seeds[0]]
        runs.append((recipe, *stages_of_presets(recipe, needed)))
    scores = {preset.name: [] for preset in presets}
    for seed, (recipe, stages, scored) in zip(seeds, runs, strict=True):
        if not stages:
            continue
        click.echo(f"seed {seed}")
        try:
            stamps = recipes.run(recipe, stages, overwrite=overwrite)
        except recipes.StageFailed as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(error.status)
        stamp_of = dict(zip((stage.name for stage in stages), stamps, strict=True))
        for name, stage in scored.items():
            scores[name].append(stamp_of[stage.name])
    record = _record(runs[0][0], presets, seeds, scores)
    click.echo(f"\n{format_table(record)}")
    from bert_flow_tf.atomic import write_atomically

    path = pathlib.Path(out) / RESULTS_FILE
    write_atomically(path, json.dumps(record, indent=2) + "\n")
    click.echo(f"results written: {path}")


def format_table(record):
    """The rows as text: Spearman x100 on the test split, mean, deviation and median over seeds, and the paper's."""
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
    first, *others = (max(len(line[i]) for line in lines) for i in range(5))
    text = []
    for name, *cells in lines:
        numbers = [cell.rjust(width) for cell, width in zip(cells, others, strict=True)]
        text.append("  ".join([name.ljust(first), *numbers]))
    text.insert(1, "-" * len(text[0]))
    seeds = ", ".join(map(str, record["seeds"]))
    return "\n".join([f"{record['task']} test, Spearman x100, {record['encoder']}, seeds {seeds}", *text])


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
        raise UserError(f"--glue_dir={glue_dir}: no such folder, expected the one that holds {task}")
    variables = {name.upper(): value for name, value in encoder.items() if value}
    return variables | {
        "GLUE_DIR": glue_dir,
        "TASK_NAME": task,
        "OUTPUT_PARENT_DIR": out,
        "SKIP_NLI": "0" if nli else "1",
    }


def _record(recipe, presets, seeds, scores):
    import importlib.metadata

    from bert_flow_tf.evaluation.paper import paper_tables
    from bert_flow_tf.evaluation.presets import paper_row, summarize

    tables = paper_tables()
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
                **{
                    metric: summarize([stamp[metric] for stamp in scores[preset.name]])
                    for metric in ("spearman", "pearson")
                },
                "paper": paper_row(preset, recipe.encoder_name, recipe.with_nli, recipe.task_name, tables),
            }
            for preset in presets
        },
        "versions": {name: importlib.metadata.version(name) for name in ("bert-flow-tf", "tensorflow")},
    }
