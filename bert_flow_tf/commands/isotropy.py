"""`bert-flow isotropy`: how evenly embeddings fill their space."""

import os

import click
import numpy as np

from bert_flow_tf.commands.options import ModelOptions, model_options, task_option
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.data.tasks import SPLITS, Task, read_split
from bert_flow_tf.evaluation.records import IsotropyResults, isotropy_table, model_in_words
from bert_flow_tf.records import made_by


@click.command(epilog="\b\nbert-flow isotropy --model runs/stsb_flow --glue_dir glue_data")
@model_options(length=64)
@task_option("Task of the sentences.")
@click.option(
    "--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders."
)
@click.option(
    "--split", type=click.Choice((*SPLITS, "all")), default="dev", help="Split of the task."
)
@click.option("--out", metavar="FILE", help="JSON file of the measures and the singular values.")
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
def isotropy(
    model: ModelOptions, task: Task, glue_dir: str, split: str, out: str | None, overwrite: bool
) -> None:
    """Measure how evenly embeddings fill their space.

    This prints mean cosines, the top singular direction's share, effective ranks and bits per
    dimension.
    """
    path = locked_file(out, overwrite=overwrite) if out else None
    folder = os.path.join(glue_dir, task.directory)
    pairs = [read_split(task, folder, one) for one in (SPLITS if split == "all" else (split,))]
    loaded = model.load()
    u = loaded.encode_pooled(
        list(dict.fromkeys(s for part in pairs for s in part.sentences_a + part.sentences_b))
    )
    from bert_flow_tf.evaluation.isotropy import gaussian_bits_per_dim, measure_isotropy

    # `low_dim` and `truncate_dim` hold on both sides; densities are those of all channels.
    reduced = loaded.reduce(u)
    measures = {"without flow": measure_isotropy(reduced)}
    is_reduced = reduced.shape[1] < u.shape[1]
    all_channels = measure_isotropy(u) if is_reduced else measures["without flow"]
    constant = all_channels.constant_channels
    # A Gaussian has no density in constant channels; the flow's bits count all channels.
    varying = f" over the {u.shape[1] - constant} channels that vary" if constant else ""
    bits = {f"diagonal Gaussian{varying}": gaussian_bits_per_dim(u)}
    learned = loaded.record.flow
    if learned is not None and learned.config is None:
        measures["with flow"] = measure_isotropy(loaded.after_flow(u))
    elif learned is not None:
        flow = loaded.require_flow("isotropy")
        parts = [flow.forward_and_bits_per_dim(u[i : i + 1024]) for i in range(0, len(u), 1024)]
        z, flow_bits = map(np.concatenate, zip(*parts, strict=True))
        measures["with flow"] = measure_isotropy(loaded.reduce(z))
        bits["flow"] = float(flow_bits.mean(dtype=float))
    result = IsotropyResults(
        made_by=made_by("bert-flow isotropy"),
        model=loaded.record,
        task=task.name,
        split=split,
        sentences=len(u),
        measures=measures,
        # Compare with normal draws, because the spectrum of a finite sample is not flat either.
        reference=measure_isotropy(np.random.default_rng(0).normal(size=reduced.shape)),
        bits_per_dim=bits,
    )
    source = f"{len(u):,} different sentences of {task.directory}, {split}"
    click.echo(
        f"{source}; {reduced.shape[1]} channels; "
        f"{model_in_words(loaded.record)}\n{isotropy_table(result).to_text()}"
    )
    if path:
        write_results(path, result)
