"""`bert-flow encode`: a file of sentences to a file of embeddings, as a stream, or many files to a folder of them."""

import functools
import pathlib
from collections.abc import Sequence

import click

from bert_flow_tf.commands.options import (
    FORMAT_OPTIONS,
    ModelOptions,
    SentenceInput,
    WholeNumber,
    model_options,
    name_list,
    with_options,
)
from bert_flow_tf.commands.outputs import own, own_file
from bert_flow_tf.errors import UserError, command_line_message
from bert_flow_tf.files.embedding_files import FORMATS, STDOUT, embedding_writer, format_of
from bert_flow_tf.files.sentence_files import PART
from bert_flow_tf.scale.bulk import PRECISIONS, Job, Settings, ShardsError, in_this_process
from bert_flow_tf.scale.on_ray import on_ray
from bert_flow_tf.scale.shards import cut, input_paths
from bert_flow_tf.serving import DTYPES


@click.command()
@model_options()
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Sentences: .txt, .tsv, .csv, .jsonl, .parquet; - is stdin. Of a folder also several, or 'patterns*'.",
)
@with_options(FORMAT_OPTIONS)
@click.option(
    "--out",
    required=True,
    metavar="FILE|DIR",
    help="File: .npy, .parquet or .tfrecord; - is standard output. Without an ending, a folder.",
)
@click.option(
    "--output_format", type=click.Choice(sorted(FORMATS.values())), help="If the file's ending does not say it."
)
@click.option(
    "--batch_size", type=WholeNumber(1), metavar="N", help="Sentences per step; by default the fastest number."
)
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default=DTYPES[0],
    help="Type of the encoder's matrices, see docs/calibrate.md.",
)
@click.option("--normalize", is_flag=True, help="Scale every embedding to norm 1.")
@click.option(
    "--keep",
    callback=name_list(),
    metavar="NAMES",
    help="Of a folder: columns to write beside the embeddings.  [default: the sentences' own]",
)
@click.option(
    "--shard_rows", type=WholeNumber(1), metavar="N", help=f"Of a folder: sentences in a file.  [default: {PART}]"
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help=f"Of a folder: the embeddings' type in its files.  [default: {PRECISIONS[0]}]",
)
@click.option("--workers", type=WholeNumber(1), metavar="N", help="Of a folder: processes that embed, through Ray.")
@click.option("--ray", metavar="HOST:PORT", help="Ray cluster for --workers.  [default: one that is started here]")
@click.option("--worker_threads", type=WholeNumber(1), metavar="N", help="Of each of the --workers.  [default: 1]")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an existing file, or what is in a folder of other input or another model.",
)
def encode(
    model: ModelOptions,
    inputs: Sequence[str],
    input_format: str | None,
    column: str | None,
    out: str,
    output_format: str | None,
    batch_size: int | None,
    dtype: str,
    normalize: bool,
    keep: list[str] | None,
    shard_rows: int | None,
    precision: str | None,
    workers: int | None,
    ray: str | None,
    worker_threads: int | None,
    overwrite: bool,
) -> None:
    """Write the embeddings of sentences, in their order.

    \b
    bert-flow encode --model my_model --input sentences.txt --out embeddings.npy
    bert-flow encode --model my_model --input pairs.tsv --column sentence1 --out embeddings.parquet
    cut -f 2 log.tsv | bert-flow encode --bert_hub demo --input - --out - > embeddings.npy
    bert-flow encode --model my_model --input 'crawl/*.parquet' --column text --keep id --out embeddings

    Memory does not grow with the file. NPY holds the embeddings alone, [n, D] float32; Parquet and TFRecord hold
    `sentence` and `embedding` in each row.

    A folder gets a Parquet file for each shard of the input, and a manifest of them: run the same command again when
    it was interrupted, or when a file was mended (docs/scale.md).
    """
    for name, value in (("ray", ray), ("worker_threads", worker_threads)):
        if value is not None and workers is None:
            raise UserError(f"--{name}: found no --workers, expected it, the only option that it applies to")
    if output_format is None and _is_folder(out):
        own(out, f"--out={out}")
        settings = Settings(
            shard_rows=shard_rows or PART,
            precision=precision or PRECISIONS[0],
            normalize_embeddings=normalize,
            batch_size=batch_size,
        )
        given = cut(
            input_paths(inputs), file_format=input_format, column=column, keep=keep, shard_rows=settings.shard_rows
        )
        job = Job(given, out, settings, overwrite=overwrite)
        load = functools.partial(model.load, dtype)
        try:
            if workers is None:
                loaded = load()
                manifest = job.run(in_this_process(loaded, out, settings), loaded.fingerprint, loaded.embedding_size)
            else:
                with on_ray(load, out, settings, workers=workers, address=ray, threads=worker_threads or 1) as engine:
                    manifest = job.run(engine, engine.model, engine.embedding_size)
        except ShardsError as error:
            if len(error.problems) > 1:
                for problem in error.problems:
                    click.echo(f"error: {command_line_message(problem)}", err=True)
            raise
        rows = sum(part.rows for part in manifest.parts.values())
        click.echo(
            f"embeddings written: {out} ({rows} of width {manifest.embedding_size}, {len(manifest.parts)} parts, "
            f"{job.made} of them now)"
        )
        return
    of_folders: dict[str, object] = {"keep": keep, "shard_rows": shard_rows, "precision": precision, "workers": workers}
    for name, given_value in of_folders.items():
        if given_value is not None:
            raise UserError(f"--{name}: found --out={out}, a file, expected a folder, the only one that it applies to")
    output_format = output_format or format_of(out)
    if len(inputs) > 1:
        raise UserError(
            f"--out={out}: found a file for {len(inputs)} inputs, expected a folder (a name without ending)"
        )
    if out != STDOUT:
        own_file(out, overwrite=overwrite)
    sentences = SentenceInput(inputs[0], input_format, column).read()
    loaded = model.load(dtype=dtype)
    n = 0
    with embedding_writer(out, file_format=output_format, width=loaded.embedding_size) as write:
        for part, embeddings in loaded.encode_parts(sentences, batch_size, normalize_embeddings=normalize):
            write(part, embeddings)
            n += len(part)
    click.echo(f"embeddings written: {out} ({n} of width {loaded.embedding_size})", err=out == STDOUT)


def _is_folder(out: str) -> bool:
    """Whether `--out` means a folder: it ends with a slash, has no ending, or is a folder without a known ending."""
    ending = pathlib.Path(out).suffix
    if out == STDOUT or ending in FORMATS:
        return False
    return not ending or out.endswith("/") or pathlib.Path(out).is_dir()
