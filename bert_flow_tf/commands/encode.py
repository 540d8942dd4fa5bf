"""`bert-flow encode`, `encode-folder` and `similarity`."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np

from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import lock_output, locked_file, say
from bert_flow_tf.common.embedding_files import OUTPUT_FORMATS, STDOUT, embedding_writer, open_array
from bert_flow_tf.common.errors import UserError, check_open, command_line_message
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.scale.on_ray import RayEngine, connected
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import Job, LocalEngine, ShardsError, input_files
from bert_flow_tf.tasks.sentence_files import STDIN, format_of_ending, read_sentences
from bert_flow_tf.vectors.texts import BLOCK_ROWS

_DTYPE = click.option(
    "--dtype", type=click.Choice(DTYPES), help="Type of matrices.  [default: float32]"
)


@click.command(
    epilog="\b\nbert-flow encode --model my_model --input sentences.txt --out embeddings.npy"
)
@opt.model_options(required=False, exports=True)
@opt.sentence_options(required=False, may_be_empty=True)
@click.option(
    "--calibration", metavar="DIR", help="Instead of a model: a calibration that fit wrote."
)
@click.option(
    "--embeddings", metavar="FILE.npy", help="Instead of --input: embeddings for --calibration."
)
@click.option("--out", required=True, metavar="FILE", help=".npy or .parquet; -: stdout")
@click.option(
    "--output_format",
    type=click.Choice(sorted(OUTPUT_FORMATS.values())),
    help="[default: by the ending]",
)
@_DTYPE
@opt.field_options(ShardSettings, "batch_size", "normalize_embeddings")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def encode(
    model: opt.ModelOptions,
    sentences: Iterator[str] | None,
    calibration: str | None,
    embeddings: str | None,
    out: str,
    output_format: str | None,
    dtype: str | None,
    batch_size: int | None,
    normalize_embeddings: bool | None,
    overwrite: bool,
) -> None:
    """Write the embeddings of a file's sentences, in their order.

    NPY holds only the embeddings, [n, D] float32; Parquet also holds the sentences. Large files
    need no more memory than small ones.
    """
    opt.check_one_of({"model": model.model, "bert_hub": model.bert_hub, "calibration": calibration})
    opt.check_one_of({"input": sentences, "embeddings": embeddings})
    model.check_dtype(dtype)
    if bool(calibration) != bool(embeddings):
        raise click.UsageError(
            "--calibration and --embeddings: found only one of them, expected both or neither"
        )
    if out == STDOUT:
        check_open("stdout", "--out=-: standard output")
    else:
        output_format = output_format or format_of_ending(
            out, OUTPUT_FORMATS, ", or --output_format"
        )
        locked_file(out, overwrite=overwrite)
    output_format = output_format or "npy"
    if calibration:
        if output_format != "npy":
            raise UserError(
                f"--out={out}: found {output_format} with --embeddings, which has no sentences; "
                "use .npy"
            )
        width, parts = _calibrated(calibration, str(embeddings))
    else:
        loaded = model.open(dtype)
        width = loaded.embedding_size
        parts = loaded.encode_blocks(
            sentences or (), batch_size=batch_size, normalize_embeddings=normalize_embeddings
        )
    n = 0
    empty = 0
    with embedding_writer(out, file_format=output_format, width=width) as write:
        for part, found in parts:
            write(part, found)
            n += len(found)
            empty += sum(not sentence.strip() for sentence in part)
    if empty:
        click.echo(f"empty sentences, embedded like the others: {empty:,}", err=True)
    say(f"embeddings written: {out} ({n} of width {width})", err=out == STDOUT)


def _calibrated(
    calibration: str, embeddings: str
) -> tuple[int, Iterator[tuple[list[str], np.ndarray]]]:
    """Return the width of calibrated embeddings, and parts of them, without sentences."""
    from bert_flow_tf.model.any_encoder import load_calibration

    calibrated = load_calibration(calibration)
    u = open_array(embeddings)
    starts = range(0, len(u), BLOCK_ROWS)
    transformed = (calibrated.transform(u[start : start + BLOCK_ROWS]) for start in starts)
    return calibrated.calibration.output_size, ((list[str](), part) for part in transformed)


@click.command(
    epilog="\b\nbert-flow encode-folder --model my_model --input 'crawl/*.parquet' --column text "
    "--out embeddings"
)
@opt.model_options(exports=True)
@opt.with_options(opt.INPUT_FILES)
@click.option("--out", required=True, metavar="DIR", help="Folder to write.")
@_DTYPE
@click.option(
    "--keep",
    callback=opt.name_list(),
    metavar="NAMES",
    help="Columns to copy.  [default: the sentences]",
)
@opt.setting_options(ShardSettings)
@click.option(
    "--workers", type=opt.WHOLE, default=0, metavar="N", help="Ray processes; 0: this process."
)
@click.option("--ray", metavar="HOST:PORT", help="Ray cluster.  [default: on this machine]")
@click.option(
    "--worker_threads", type=opt.COUNT, default=1, metavar="N", help="Threads per worker."
)
@click.option("--overwrite", is_flag=True, help="Replace other parts.")
def encode_folder(
    model: opt.ModelOptions,
    inputs: Sequence[str],
    out: str,
    settings: ShardSettings,
    workers: int,
    ray: str | None,
    worker_threads: int,
    **given: Any,
) -> None:
    """Write the embeddings of many files into a folder.

    The folder gets Parquet files and a manifest. After an interruption, repeat the command to
    resume.
    """
    model.check_dtype(given["dtype"])
    lock_output(out, f"--out={out}")
    columns = {name: given.pop(name) for name in ("column", "keep", "no_header")}
    files = input_files(inputs, file_format=given.pop("input_format"), **columns)
    load = functools.partial(model.open, given["dtype"])
    job = Job(files, out, settings, overwrite=given["overwrite"])
    try:
        if workers or ray:
            workers = workers or 1
            with connected(ray, workers, worker_threads):
                manifest = job.run(
                    RayEngine(load, out, settings, workers=workers, threads=worker_threads)
                )
        else:
            manifest = job.run(LocalEngine(load(), out, settings))
    except ShardsError as error:
        for problem in error.problems if len(error.problems) > 1 else ():
            click.echo(f"error: {command_line_message(problem)}", err=True)
        raise
    rows = sum(manifest.parts.values())
    parts = f"{len(manifest.parts)} parts, {job.new_parts} of them new"
    say(f"embeddings written: {out} ({rows} of width {manifest.embedding_size}, {parts})")


@click.command(
    epilog='\b\nbert-flow similarity --model my_model "A boat crosses the lake." "A ship sails."'
)
@click.argument("sentences", nargs=-1, metavar="[A B]")
@opt.model_options(exports=True)
@click.option("--pairs", metavar="FILE", help="File of pairs; -: TSV from stdin")
@click.option(
    "--columns",
    default="sentence1,sentence2",
    metavar="A,B",
    help="Columns of --pairs by name or number.",
)
@opt.FORMAT_OPTIONS[-1]
def similarity(
    sentences: tuple[str, ...],
    model: opt.ModelOptions,
    pairs: str | None,
    columns: str,
    no_header: bool,
) -> None:
    """Print the cosine of two sentences, or of pairs in a file.

    A flow moves cosines towards 0, so a threshold that was chosen without a flow does not apply.
    """
    if len(sentences) != (0 if pairs else 2):
        raise click.UsageError(f"found {len(sentences)} sentences, expected 2, or --pairs")
    names = columns.split(",")
    if len(names) != 2 or not all(names):
        raise click.BadParameter("expected two names, separated by a comma", param_hint="--columns")
    rows = iter([list(sentences)])
    if pairs:
        pairs_format = "tsv" if pairs == STDIN else None
        rows = read_sentences(pairs, file_format=pairs_format, columns=names, no_header=no_header)
    loaded = model.open()
    while part := list(itertools.islice(rows, BLOCK_ROWS)):
        both = loaded.encode(
            [sentence for pair in part for sentence in pair], normalize_embeddings=True
        )
        for cosine in np.sum(both[0::2] * both[1::2], axis=1):
            click.echo(f"{cosine:.6f}")
