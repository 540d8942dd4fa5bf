"""`bert-flow launch`: one training in several processes."""

import dataclasses
import functools
import os
from collections.abc import Sequence

import click
from absl import flags

from bert_flow_tf.commands.command import command, setting_options
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.original import command_line
from bert_flow_tf.original.start import check
from bert_flow_tf.scale.on_ray import train_on_ray
from bert_flow_tf.training.cluster import LostWorker


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchSettings(Settings):
    """The processes of a training."""

    workers: int = flag(1, "Processes that train together.", required=True, ge=1)
    ray: str | None = flag(
        None, "Ray cluster to train on.  [default: this machine]", metavar="HOST:PORT"
    )
    worker_threads: int | None = flag(
        None, "Threads per worker.  [default: an equal share; 1 with --ray]", ge=1
    )
    max_restarts: int = flag(3, "Restarts of all processes when one dies.", ge=0)


@command(
    epilog="\b\nbert-flow launch --workers 2 -- --task_name=STS-B --data_dir=glue_data/STS-B "
    "--do_train=true",
    context_settings={"ignore_unknown_options": True},
)
@setting_options(LaunchSettings, name="processes")
@click.argument("run_flags", metavar="FLAGS...", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(processes: LaunchSettings, run_flags: Sequence[str]) -> None:
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
    cores = len(os.sched_getaffinity(0))
    share = 1 if processes.ray else max(1, cores // processes.workers)
    click.echo(f"Starting {processes.workers} workers with Ray", err=True)
    train_on_ray(
        functools.partial(command_line.run, settings),
        LostWorker,
        workers=processes.workers,
        threads=processes.worker_threads or share,
        address=processes.ray,
        restarts=processes.max_restarts,
    )
