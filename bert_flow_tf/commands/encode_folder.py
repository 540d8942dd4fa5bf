"""`bert-flow encode-folder`: the embeddings of many files."""

import dataclasses
import functools

import click

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUTS, InputForm
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.model_options import DTYPE, EncodingOptions
from bert_flow_tf.commands.outputs import lock_output, say
from bert_flow_tf.common.errors import command_line_message
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.scale.on_ray import RayEngine, connected
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import Job, LocalEngine, Manifest, ShardsError


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerOptions(Settings):
    """The options of processes that encode."""

    workers: int = flag(0, "Ray processes; 0: this process.", ge=0)
    ray: str | None = flag(None, "Ray cluster.  [default: on this machine]", metavar="HOST:PORT")
    worker_threads: int = flag(1, "Threads per worker.", needs=("workers", "ray"), ge=1)


@command(
    epilog="\b\nbert-flow encode-folder --model my_model --input 'crawl/*.parquet' --column text "
    "--out embeddings",
    one_of=[("model", "bert_hub")],
)
@setting_options(EncodingOptions, name="model")
@INPUTS
@setting_options(InputForm, name="form")
@option("--out", required=True, metavar="DIR", help="Folder to write.")
@DTYPE
@option(
    "--keep",
    callback=name_list(),
    metavar="NAMES",
    help="Columns to copy.  [default: the sentences]",
)
@setting_options(ShardSettings)
@setting_options(WorkerOptions, name="workers")
@option("--overwrite", is_flag=True, help="Replace other parts.")
def encode_folder(
    model: EncodingOptions,
    inputs: tuple[str, ...],
    form: InputForm,
    out: str,
    dtype: str | None,
    keep: list[str] | None,
    settings: ShardSettings,
    workers: WorkerOptions,
    overwrite: bool,
) -> None:
    """Write the embeddings of many files into a folder.

    The folder gets Parquet files and a manifest. After an interruption, repeat the command to
    resume.
    """
    model.check_dtype()
    lock_output(out, f"--out={out}")
    load = functools.partial(model.open, dtype)
    job = Job(form.files(inputs, keep), out, settings, overwrite=overwrite)
    try:
        manifest = _run(job, load, out, settings, workers)
    except ShardsError as error:
        for problem in error.problems if len(error.problems) > 1 else ():
            click.echo(f"error: {command_line_message(problem)}", err=True)
        raise
    rows = sum(manifest.parts.values())
    parts = f"{len(manifest.parts)} parts, {job.new_parts} of them new"
    say(f"embeddings written: {out} ({rows} of width {manifest.embedding_size}, {parts})")


def _run(
    job: Job,
    load: functools.partial,
    out: str,
    settings: ShardSettings,
    workers: WorkerOptions,
) -> Manifest:
    """Encode in this process, or in those of Ray."""
    if not (workers.workers or workers.ray):
        return job.run(LocalEngine(load(), out, settings))
    count = workers.workers or 1
    threads = workers.worker_threads
    with connected(workers.ray, count, threads):
        return job.run(RayEngine(load, out, settings, workers=count, threads=threads))
