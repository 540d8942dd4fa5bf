"""`bert-flow encode`: a file of sentences to a file of embeddings, as a stream."""

import click

from bert_flow_tf.commands.model_options import with_options
from bert_flow_tf.commands.results import results_file
from bert_flow_tf.commands.sentence_model import (
    INPUT_OPTIONS,
    check_model_options,
    load_model,
    sentence_model_options,
)
from bert_flow_tf.embedding_files import FORMATS, STDOUT, embedding_writer, format_of
from bert_flow_tf.errors import UserError
from bert_flow_tf.sentence_files import read_sentences


@click.command()
@sentence_model_options
@with_options(INPUT_OPTIONS)
@click.option("--out", required=True, metavar="FILE", help=".npy, .parquet or .tfrecord; - is standard output.")
@click.option("--output_format", type=click.Choice(sorted(FORMATS.values())), help="Where the ending does not tell.")
@click.option(
    "--batch_size", type=click.IntRange(1), metavar="N", help="Sentences a step; by default as many as run fastest."
)
@click.option("--normalize", is_flag=True, help="Scale every embedding to norm 1.")
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def encode(input_file, input_format, column, out, output_format, batch_size, normalize, overwrite, **options):
    """Write the embeddings of sentences, in their order.

    \b
    bert-flow encode --model my_model --input sentences.txt --out embeddings.npy
    bert-flow encode --model my_model --input pairs.tsv --column sentence1 --out embeddings.parquet
    cut -f 2 log.tsv | bert-flow encode --bert_hub demo --input - --out - > embeddings.npy

    Memory does not grow with the file. NPY holds the embeddings alone, [n, D] float32; Parquet and TFRecord hold
    `sentence` and `embedding` in each row.
    """
    check_model_options(**options)
    output_format = output_format or format_of(out)
    if out != STDOUT:
        results_file(out, flag=f"--out={out}", overwrite=overwrite)
    if input_file is None:
        raise UserError("--input: missing, expected a file of sentences, or -")
    sentences = read_sentences(input_file, file_format=input_format, columns=column and [column])
    model = load_model(**options)
    n = 0
    with embedding_writer(out, file_format=output_format, width=model.embedding_size) as write:
        for part, embeddings in model.encode_parts(sentences, batch_size, normalize_embeddings=normalize):
            write(part, embeddings)
            n += len(part)
    click.echo(f"embeddings written: {out} ({n} of width {model.embedding_size})", err=out == STDOUT)
