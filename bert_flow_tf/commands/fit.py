"""`bert-flow fit`: a flow learned on one's own sentences, saved with its encoder."""

import pathlib

import click

from bert_flow_tf.commands.flow_option import check_flow_config
from bert_flow_tf.commands.model_options import with_options
from bert_flow_tf.commands.results import check_writable
from bert_flow_tf.commands.sentence_model import ENCODER_OPTIONS, INPUT_OPTIONS, load_model
from bert_flow_tf.errors import UserError

_POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command()
@click.option("--bert_hub", required=True, metavar="HANDLE|DIR", help="The encoder: demo, base, large, …")
@with_options(ENCODER_OPTIONS)
@with_options(INPUT_OPTIONS)
@click.option("--out", required=True, metavar="DIR", help="Folder of the model to be.")
@click.option("--flow_model_config", default="config_l3_d3_w32", show_default=True, metavar="NAME|FILE")
@click.option("--num_train_epochs", "epochs", type=_POSITIVE, default=1.0, show_default=True, metavar="X")
@click.option(
    "--train_batch_size",
    "batch_size",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    metavar="N",
    help="Sentences a step.",
)
@click.option("--flow_learning_rate", "learning_rate", type=_POSITIVE, default=1e-3, show_default=True, metavar="X")
@click.option("--seed", type=click.IntRange(0), default=1234, show_default=True, metavar="N")
@click.option("--overwrite", is_flag=True, help="Replace the saved model that is there.")
def fit(
    bert_hub,
    preprocess_hub,
    sentence_embedding_type,
    max_seq_length,
    input_file,
    input_format,
    column,
    out,
    overwrite,
    **training,
):
    """Learn a flow on sentences, without labels, and save it with its encoder.

    \b
    bert-flow fit --bert_hub demo --input sentences.txt --out my_model
    bert-flow encode --model my_model --input sentences.txt --out embeddings.npy

    The encoder stays as it is. The folder holds all that `encode`, `similarity` and `project` need, and a model card.
    """
    path = pathlib.Path(out)
    if path.exists() and not overwrite:
        raise UserError(f"--out={out}: exists, expected a new folder, or --overwrite")
    check_writable(path, f"--out={out}")
    check_flow_config(training["flow_model_config"])
    if input_file is None:
        raise UserError("--input: missing, expected a file of sentences, or -")
    from bert_flow_tf.sentence_files import read_sentences

    if path.exists():
        from bert_flow_tf.saved_model import check_place

        check_place(path, overwrite=overwrite)
    sentences = list(read_sentences(input_file, file_format=input_format, columns=column and [column]))
    # Before the encoder is loaded.
    if len(sentences) < training["batch_size"]:
        raise UserError(
            f"--input={input_file}: found {len(sentences)} sentences, expected at least the "
            f"{training['batch_size']} of one step (--train_batch_size)"
        )
    model = load_model(
        None,
        bert_hub,
        preprocess_hub=preprocess_hub,
        sentence_embedding_type=sentence_embedding_type,
        max_seq_length=max_seq_length,
    )
    model.fit(sentences, **training).save(path, overwrite=overwrite)
    click.echo(f"model written: {out} ({len(sentences)} sentences, {model.learned_on['steps']} steps)")
