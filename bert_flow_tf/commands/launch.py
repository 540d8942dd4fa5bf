"""`bert-flow launch`: one training in several processes."""

import functools
import os
from collections.abc import Sequence

import click
from absl import flags

from bert_flow_tf.commands.options import COUNT, WHOLE
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.original import command_line
from bert_flow_tf.original.start import check
from bert_flow_tf.scale.on_ray import train_on_ray
from bert_flow_tf.training.cluster import LostWorker


@click.command(
    epilog="\b\nbert-flow launch --workers 2 -- --task_name=STS-B --data_dir=glue_data/STS-B "
    "--do_train=true",
    context_settings={"ignore_unknown_options": True},
)
@click.option(
    "--workers", type=COUNT, required=True, metavar="N", help="Processes that train together."
)
@click.option(
    "--ray", metavar="HOST:PORT", help="Ray cluster to train on.  [default: this machine]"
)
@click.option(
    "--worker_threads",
    type=COUNT,
    metavar="N",
    help="Threads per worker.  [default: an equal share; 1 with --ray]",
)
@click.option(
    "--max_restarts",
    type=WHOLE,
    default=3,
    metavar="N",
    help="Restarts of all processes when one dies.",
)
@click.argument("run_flags", metavar="FLAGS...", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(
    workers: int,
    ray: str | None,
    worker_threads: int | None,
    max_restarts: int,
    run_flags: Sequence[str],
) -> None:
    """Train one run in several processes; FLAGS are those of run_siamese.

    Each process trains on its part of every batch. If one dies, Ray restarts all from the last
    checkpoint.
    """
    values = flags.FlagValues()
    command_line.define_flags(values)
    if extra := command_line.parse(["run_siamese", *run_flags], values)[1:]:
        raise UserError(f"found the argument {extra[0]}, expected flags only (--name=value)")
    if values.overwrite:
        raise UserError(
            "--overwrite: found with launch, where each restart would delete the run; delete it "
            "yourself"
        )
    settings = command_line.settings_of(values)
    check(settings)
    threads = worker_threads or (1 if ray else max(1, len(os.sched_getaffinity(0)) // workers))
    click.echo(f"Starting {workers} workers with Ray", err=True)
    run = functools.partial(command_line.run, settings)
    train_on_ray(
        run, LostWorker, workers=workers, threads=threads, address=ray, restarts=max_restarts
    )
