"""`bert-flow encode`: the embeddings of a file's sentences."""

from collections.abc import Iterator

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUT, InputForm
from bert_flow_tf.commands.model_options import DTYPE, EncodingOptions
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.common.embedding_files import (
    OUTPUT_FORMATS,
    STDOUT,
    embedding_writer,
    format_of_output,
    open_array,
)
from bert_flow_tf.common.errors import UserError, check_open
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.tasks.sentence_files import read_texts
from bert_flow_tf.vectors.texts import BLOCK_ROWS

# A part holds sentences, or none for a file of embeddings, and embeddings [k, D].
_Parts = Iterator[tuple[list[str], np.ndarray]]


@command(
    epilog="\b\nbert-flow encode --model my_model --input sentences.txt --out embeddings.npy",
    one_of=[("model", "bert_hub", "calibration"), ("input", "embeddings")],
    excludes={"calibration": ("dtype", "batch_size", "normalize")},
)
@setting_options(EncodingOptions, name="model")
@INPUT
@setting_options(InputForm, name="form")
@option(
    "--calibration",
    metavar="DIR",
    needs=("embeddings",),
    help="Instead of a model: a calibration that fit wrote.",
)
@option(
    "--embeddings",
    metavar="FILE.npy",
    needs=("calibration",),
    help="Instead of --input: embeddings for --calibration.",
)
@option("--out", required=True, metavar="FILE", help=".npy or .parquet; -: stdout")
@option(
    "--output_format",
    type=click.Choice(sorted(OUTPUT_FORMATS.values())),
    help="[default: by the ending]",
)
@DTYPE
@setting_options(ShardSettings, "batch_size", "normalize_embeddings")
@option("--overwrite", is_flag=True, help="Replace an existing file.")
def encode(
    model: EncodingOptions,
    input_path: str | None,
    form: InputForm,
    calibration: str | None,
    embeddings: str | None,
    out: str,
    output_format: str | None,
    dtype: str | None,
    settings: ShardSettings,
    overwrite: bool,
) -> None:
    """Write the embeddings of a file's sentences, in their order.

    NPY holds only the embeddings, [n, D] float32; Parquet also holds the sentences. Large files
    need no more memory than small ones.
    """
    model.check_dtype()
    sentences = iter(()) if input_path is None else read_texts(form.file(input_path))
    if out == STDOUT:
        check_open("stdout", "--out=-: standard output")
    else:
        output_format = output_format or format_of_output(out)
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
            sentences,
            batch_size=settings.batch_size,
            normalize_embeddings=settings.normalize_embeddings,
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


def _calibrated(calibration: str, embeddings: str) -> tuple[int, _Parts]:
    """Return the width of calibrated embeddings, and parts of them, without sentences."""
    from bert_flow_tf.model.any_encoder import load_calibration

    calibrated = load_calibration(calibration)
    u = open_array(embeddings)
    starts = range(0, len(u), BLOCK_ROWS)
    transformed = (calibrated.transform(u[start : start + BLOCK_ROWS]) for start in starts)
    return calibrated.calibration.output_size, ((list[str](), part) for part in transformed)
