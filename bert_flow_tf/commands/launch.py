"""`bert-flow launch`: one training in several processes, of this machine or of a Ray cluster."""

import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from bert_flow_tf.commands.options import WholeNumber
from bert_flow_tf.errors import UserError
from bert_flow_tf.scale.local_workers import train_on_workers
from bert_flow_tf.scale.train_on_ray import train_on_ray


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--workers", type=WholeNumber(1), required=True, metavar="N", help="Processes that train together.")
@click.option("--ray", metavar="HOST:PORT", help="Ray cluster whose machines train.  [default: this machine]")
@click.option("--worker_threads", type=WholeNumber(1), metavar="N", help="Of each.  [default: the processors' share]")
@click.option(
    "--max_restarts", type=WholeNumber(0), default=3, metavar="N", help="How often all start again when one has died."
)
@click.argument("flags", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(workers: int, ray: str | None, worker_threads: int | None, max_restarts: int, flags: Sequence[str]) -> None:
    """Train one run in several processes, FLAGS being those of run_siamese.

    \b
    bert-flow launch --workers 2 -- --task_name=STS-B --data_dir=glue_data/STS-B --bert_hub=demo --do_train=true \\
        --flow=1 --flow_loss=1 --num_examples=0 --output_parent_dir=runs --exp_name=stsb_flow

    Each takes its part of every batch, so that the run is that of one process. When one dies, all go on from the last
    checkpoint (docs/scale.md).
    """
    if any(re.fullmatch(r"--?overwrite(=.*)?", flag) for flag in flags):
        raise UserError(
            "--overwrite: found it in a launch, expected none: a restart would begin again (remove the run)"
        )
    options: dict[str, Any] = {"max_restarts": max_restarts, "threads": worker_threads}
    if ray is None:
        command = [sys.executable, "-m", "bert_flow_tf.run_siamese", *flags]
        sys.exit(train_on_workers(command, workers, **options))
    sys.exit(train_on_ray(flags, workers, ray, **options))
