"""The command `bert-flow`."""

import os
import pathlib
import sys
import warnings

import click

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.version_folder import check_destination


class _OneLineErrors(click.Group):
    """Group whose commands end with `error: …` on stderr and status 2 where the user can mend it."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(2)


def _quiet_libraries():
    """Keeps remarks that libraries make when imported off stderr, where a user's error is to be seen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for category in (FutureWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")


@click.group(cls=_OneLineErrors, context_settings={"help_option_names": ["-h", "--help"]})
def main():
    """BERT-flow: calibrated sentence embeddings from a frozen or fine-tuned BERT."""
    _quiet_libraries()


@main.command()
@click.option(
    "--tf1_checkpoint", metavar="DIR|PREFIX", help="TF1 checkpoint with bert_config.json and vocab.txt beside it."
)
@click.option("--huggingface", metavar="DIR", help="Folder with config.json, vocab.txt and model.safetensors.")
@click.option("--run", metavar="DIR|PREFIX", help="Run of run_siamese that trained its encoder.")
@click.option("--out", required=True, metavar="DIR", help="Encoder folder to make, for --bert_hub.")
@click.option(
    "--cased/--uncased", default=None, help="Kind of vocabulary; by default cased when it has pieces with capitals."
)
@click.option("--overwrite", is_flag=True, help="Replace an encoder folder of that name.")
def convert(tf1_checkpoint, huggingface, run, out, cased, overwrite):
    """Make a TF-Hub encoder and its preprocess model from a BERT."""
    given = [value for value in (tf1_checkpoint, huggingface, run) if value]
    if len(given) != 1:
        raise UserError(
            f"bert-flow convert: {len(given)} sources, expected one of --tf1_checkpoint, --huggingface, --run"
        )
    if run and cased is not None:
        raise UserError("--cased/--uncased: a run's encoder knows its vocabulary, expected neither with --run")
    if pathlib.Path(out).exists() and not overwrite:
        raise UserError(f"--out={out}: exists, expected a new folder or --overwrite")
    do_lower_case = None if cased is None else not cased
    # TensorFlow takes seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.convert.from_huggingface import convert_hugging_face
    from bert_flow_tf.convert.from_run import convert_run, run_checkpoint
    from bert_flow_tf.convert.from_tf1 import convert_tf1
    from bert_flow_tf.encoder_source import run_encoder

    if tf1_checkpoint:
        convert_tf1(tf1_checkpoint, out, do_lower_case=do_lower_case, overwrite=overwrite)
    elif huggingface:
        convert_hugging_face(huggingface, out, do_lower_case=do_lower_case, overwrite=overwrite)
    else:
        prefix = run_checkpoint(run)
        convert_run(prefix, run_encoder(prefix), out, overwrite=overwrite)
    click.echo(f"encoder folder written: {out}")


@main.command()
@click.option(
    "--run", required=True, metavar="DIR|PREFIX", help="Finished run of run_siamese, or one of its checkpoints."
)
@click.option("--out", required=True, metavar="DIR", help="Folder of the model; the version becomes a folder in it.")
@click.option("--version", type=int, default=1, show_default=True, metavar="N", help="Version, for TensorFlow Serving.")
@click.option("--normalize", is_flag=True, help="Scale every embedding to norm 1.")
@click.option("--overwrite", is_flag=True, help="Replace this version.")
def export(run, out, version, normalize, overwrite):
    """Write a SavedModel from text to embeddings, and check it by loading it again."""
    check_destination(out, version, overwrite)
    # TensorFlow takes seconds to load, and a refusal needs none of it.
    from bert_flow_tf.api import BertFlow

    exported = BertFlow.load(run).export(out, version=version, normalize=normalize, overwrite=overwrite)
    click.echo(
        f"SavedModel written: {out}/{version} "
        f"(reloaded: max difference {exported.max_difference:.1e}, values up to {exported.max_value:.1e})"
    )


if __name__ == "__main__":
    main()
