"""`bert-flow export`: a SavedModel, or another format."""

from typing import Any

import click
from absl import logging

from bert_flow_tf.commands.options import HELP_OF_MODEL, LENGTH, WHOLE, check_model
from bert_flow_tf.commands.outputs import lock_output
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.serving.formats import EXPORT_FORMATS, SAVEDMODEL, export_path

_VERSION = click.IntRange(1, 2**63 - 1)


@click.command(epilog="\b\nbert-flow export --model runs/stsb_flow --out exported/stsb")
@click.option("--model", required=True, metavar="RUN", help=HELP_OF_MODEL)
@click.option("--out", required=True, metavar="DIR", help="Folder to write; a SavedModel is a version in it.")
@click.option("--format", type=click.Choice(list(EXPORT_FORMATS)), default=SAVEDMODEL, help="Format of the export.")
@click.option("--version", type=_VERSION, metavar="N", help="Version of a SavedModel.  [default: the next one]")
@click.option("--normalize", is_flag=True, help="Scale every embedding to norm 1.")
@click.option("--low_dim", type=WHOLE, metavar="D", help="Average channels to D.  [default: the run's]")
@click.option("--max_seq_length", type=LENGTH, metavar="N", help="Word pieces per sentence.  [default: the run's]")
@click.option("--dtype", type=click.Choice(DTYPES), default=DTYPES[0], help="Type of a SavedModel's matrices.")
@click.option("--overwrite", is_flag=True, help="Replace this version or folder; a running server keeps the old one.")
def export(model: str, out: str, format: str, version: int | None, dtype: str, overwrite: bool, **options: Any) -> None:
    """Write a SavedModel or another format, and check it.

    A SavedModel has four signatures: serving_default (sentences to embedding), similarity (sentence_a and sentence_b to
    cosine), tokens (word-piece ids to embedding) and pooled (sentences to the embedding before the flow).
    """
    check_model(model)
    lock_output(out, f"--out={out}")
    options |= {"format": format, "version": version, "dtype": dtype, "overwrite": overwrite}
    export_path(out, format, version=version, dtype=dtype, overwrite=overwrite, flag=f"--out={out}")
    from bert_flow_tf.api import BertFlow

    loaded = BertFlow.from_pretrained(model)
    logging.info("writing and checking the %s", format)
    exported = loaded.export(out, **options)
    checked = "not checked: onnxruntime is not installed"
    if exported.max_difference is not None:
        checked = f"reloaded: max difference {exported.max_difference:.1e}, values up to {exported.max_value:.1e}"
        checked += f", smallest cosine {exported.min_cosine:.4f}" if dtype != DTYPES[0] else ""
    summary = f"SavedModel written: {out}/{exported.path.name}" if format == SAVEDMODEL else f"{format} written: {out}"
    click.echo(f"{summary} ({checked})")
