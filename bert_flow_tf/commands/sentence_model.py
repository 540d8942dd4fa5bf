"""What the commands on sentences share: the model they embed with, and the sentences they read."""

import click

from bert_flow_tf.commands.model_options import with_options
from bert_flow_tf.errors import UserError
from bert_flow_tf.sentence_files import FORMATS

INPUT_OPTIONS = [
    click.option("--input", "input_file", metavar="FILE", help="Sentences: .txt, .tsv, .jsonl, .parquet; - is stdin."),
    click.option(
        "--input_format", type=click.Choice(sorted(set(FORMATS.values()))), help="Where the ending does not tell."
    ),
    click.option(
        "--column",
        metavar="NAME|N",
        help="Of TSV (N without a line of names), JSON lines, Parquet.  [default: sentence]",
    ),
]


def sentence_model_options(command):
    """Decorator that gives a command `--model` or `--bert_hub` and the latter's options."""
    return with_options(
        [
            click.option("--model", metavar="DIR", help="A saved model (fit, save), or a finished run of run_siamese."),
            click.option("--bert_hub", metavar="HANDLE|DIR", help="An encoder as it is, instead: demo, base, large, …"),
            *ENCODER_OPTIONS,
        ]
    )(command)


ENCODER_OPTIONS = [
    click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model, where --bert_hub does not tell."),
    click.option("--sentence_embedding_type", metavar="NAME", help="Pooling of --bert_hub.  [default: avg]"),
    click.option("--max_seq_length", type=click.IntRange(3), metavar="N", help="Of --bert_hub.  [default: 64]"),
]


def check_model_options(model, bert_hub, **encoder_options):
    """Raises `UserError` unless one model is named, and options of `--bert_hub` come with it; takes no TensorFlow."""
    if bool(model) == bool(bert_hub):
        found = "--model and --bert_hub" if model else "no model"
        raise UserError(f"{click.get_current_context().command_path}: found {found}, expected --model or --bert_hub")
    for name, value in encoder_options.items():
        if model and value is not None:
            raise UserError(f"--{name}: found --model, expected --bert_hub, which it belongs to")


def load_model(model, bert_hub, **encoder_options):
    """`BertFlow` of a saved model or run, or of an encoder as it is."""
    # TensorFlow takes seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.api import BertFlow

    if model:
        return BertFlow.from_pretrained(model)
    return BertFlow.from_hub(bert_hub, **{name: value for name, value in encoder_options.items() if value is not None})
