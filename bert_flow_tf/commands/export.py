"""`bert-flow export`: a run as a SavedModel for TensorFlow Serving."""

import click

from bert_flow_tf.serving.version_folder import check_destination


@click.command()
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
