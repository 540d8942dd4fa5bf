"""`bert-flow encode`: a file of sentences to a file of embeddings, as a stream."""

import click

from bert_flow_tf.commands.options import ModelOptions, SentenceInput, WholeNumber, input_options, model_options
from bert_flow_tf.commands.outputs import own_file
from bert_flow_tf.files.embedding_files import FORMATS, STDOUT, embedding_writer, format_of
from bert_flow_tf.serving import DTYPES


@click.command()
@model_options()
@input_options
@click.option("--out", required=True, metavar="FILE", help=".npy, .parquet or .tfrecord; - is standard output.")
@click.option(
    "--output_format", type=click.Choice(sorted(FORMATS.values())), help="If the file's ending does not say it."
)
@click.option(
    "--batch_size", type=WholeNumber(1), metavar="N", help="Sentences per step; by default the fastest number."
)
@click.option(
    "--dtype", type=click.Choice(DTYPES), default=DTYPES[0], help="Of the encoder's matrices; see docs/calibrate.md."
)
@click.option("--normalize", is_flag=True, help="Scale every embedding to norm 1.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def encode(
    model: ModelOptions,
    source: SentenceInput,
    out: str,
    output_format: str | None,
    batch_size: int | None,
    dtype: str,
    normalize: bool,
    overwrite: bool,
) -> None:
    """Write the embeddings of sentences, in their order.

    \b
    bert-flow encode --model my_model --input sentences.txt --out embeddings.npy
    bert-flow encode --model my_model --input pairs.tsv --column sentence1 --out embeddings.parquet
    cut -f 2 log.tsv | bert-flow encode --bert_hub demo --input - --out - > embeddings.npy

    Memory does not grow with the file. NPY holds the embeddings alone, [n, D] float32; Parquet and TFRecord hold
    `sentence` and `embedding` in each row.
    """
    output_format = output_format or format_of(out)
    if out != STDOUT:
        own_file(out, overwrite=overwrite)
    sentences = source.read()
    loaded = model.load(dtype=dtype)
    n = 0
    with embedding_writer(out, file_format=output_format, width=loaded.embedding_size) as write:
        for part, embeddings in loaded.encode_parts(sentences, batch_size, normalize_embeddings=normalize):
            write(part, embeddings)
            n += len(part)
    click.echo(f"embeddings written: {out} ({n} of width {loaded.embedding_size})", err=out == STDOUT)
