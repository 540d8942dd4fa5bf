"""`bert-flow project`: embeddings as files of TensorBoard's embedding projector."""

from collections.abc import Iterator

import click
import numpy as np

from bert_flow_tf.commands.options import ModelOptions, model_options, sentence_options
from bert_flow_tf.commands.outputs import own_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind, new_folder

_CONFIG_FILE, _METADATA_FILE = "projector_config.pbtxt", "sentences.tsv"
_FILES = (_CONFIG_FILE, _METADATA_FILE, "embedding.tsv", "with_flow.tsv", "without_flow.tsv")


@click.command()
@model_options()
@sentence_options()
@click.option("--out", required=True, metavar="DIR", help="Folder for TensorBoard's --logdir.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier projection.")
def project(model: ModelOptions, sentences: Iterator[str], out: str, overwrite: bool) -> None:
    """Write embeddings for TensorBoard's embedding projector, with and without the flow.

    \b
    bert-flow project --model my_model --input sentences.txt --out projection
    tensorboard --logdir projection

    A few thousand sentences are what the projector can show.
    """
    path = own_folder(out, FolderKind("a projection", _CONFIG_FILE, _FILES), overwrite=overwrite)
    points = list(sentences)
    if not points:
        raise UserError("--input: found no sentence, expected at least one")
    loaded = model.load()
    embeddings = loaded.encode(points)
    tensors = {"embedding": embeddings}
    if loaded.flow is not None and loaded.low_dim <= 0:
        tensors = {"with_flow": embeddings, "without_flow": loaded.inverse(embeddings)}
    with new_folder(path) as folder:
        # A tab or a line break would start another column or point.
        labels = "".join(f"{' '.join(sentence.split()) or '(empty)'}\n" for sentence in points)
        (folder / _METADATA_FILE).write_text(labels, encoding="utf-8")
        config = ""
        for name, values in tensors.items():
            np.savetxt(folder / f"{name}.tsv", values, fmt="%.7g", delimiter="\t")
            config += f'embeddings {{\n  tensor_name: "{name}"\n  tensor_path: "{name}.tsv"\n'
            config += f'  metadata_path: "{_METADATA_FILE}"\n}}\n'
        (folder / _CONFIG_FILE).write_text(config, encoding="utf-8")
    click.echo(f"projection written: {out} (tensorboard --logdir {out})")
