"""`bert-flow project`: embeddings as files of TensorBoard's embedding projector."""

import pathlib

import click

from bert_flow_tf.commands.model_options import with_options
from bert_flow_tf.commands.results import check_writable
from bert_flow_tf.commands.sentence_model import (
    INPUT_OPTIONS,
    check_model_options,
    load_model,
    sentence_model_options,
)
from bert_flow_tf.errors import UserError
from bert_flow_tf.sentence_files import read_sentences

_CONFIG_FILE = "projector_config.pbtxt"
_METADATA_FILE = "sentences.tsv"
_FILES = (_CONFIG_FILE, _METADATA_FILE, "embedding.tsv", "with_flow.tsv", "without_flow.tsv")


@click.command()
@sentence_model_options
@with_options(INPUT_OPTIONS)
@click.option("--out", required=True, metavar="DIR", help="Folder for TensorBoard's --logdir.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier projection.")
def project(input_file, input_format, column, out, overwrite, **options):
    """Write embeddings for TensorBoard's embedding projector, with and without the flow.

    \b
    bert-flow project --model my_model --input sentences.txt --out projection
    tensorboard --logdir projection

    A few thousand sentences are what the projector can show.
    """
    check_model_options(**options)
    path = pathlib.Path(out)
    if path.exists() and not overwrite:
        raise UserError(f"--out={out}: exists, expected a new folder, or --overwrite")
    if path.exists() and not (path / _CONFIG_FILE).is_file():
        raise UserError(f"--out={out}: holds no {_CONFIG_FILE}, expected an earlier projection to overwrite")
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in _FILES) if path.exists() else []
    if others:
        raise UserError(f"--out={out}: holds {others[0]} beside a projection, expected nothing else to overwrite")
    check_writable(path, f"--out={out}")
    if input_file is None:
        raise UserError("--input: missing, expected a file of sentences, or -")
    sentences = list(read_sentences(input_file, file_format=input_format, columns=column and [column]))
    if not sentences:
        raise UserError(f"{input_file}: found no sentence, expected at least one")
    model = load_model(**options)
    embeddings = model.encode(sentences)
    tensors = {"embedding": embeddings}
    if model.flow is not None and model.low_dim <= 0:
        tensors = {"with_flow": embeddings, "without_flow": model.inverse(embeddings)}
    write_projection(path, sentences, tensors, overwrite=overwrite)
    click.echo(f"projection written: {out} (tensorboard --logdir {out})")


def write_projection(path, sentences, tensors, *, overwrite=False):
    """Makes the folder: a TSV file of each array and one of the sentences, and the projector's configuration.

    Args:
      path: pathlib.Path of the folder.
      sentences: list of strings, which become the points' labels.
      tensors: dict of name -> array [n, D].
      overwrite: whether a folder there may be replaced.
    """
    import numpy as np

    from bert_flow_tf.atomic import new_folder

    with new_folder(path, replace=overwrite) as folder:
        folder.mkdir()
        # One column has no line of names. A tab or a line break would be another column or point.
        labels = "".join(f"{' '.join(sentence.split()) or '(empty)'}\n" for sentence in sentences)
        (folder / _METADATA_FILE).write_text(labels, encoding="utf-8")
        config = []
        for name, values in tensors.items():
            np.savetxt(folder / f"{name}.tsv", values, fmt="%.7g", delimiter="\t")
            config.append(
                f'embeddings {{\n  tensor_name: "{name}"\n  tensor_path: "{name}.tsv"\n'
                f'  metadata_path: "{_METADATA_FILE}"\n}}\n'
            )
        (folder / _CONFIG_FILE).write_text("".join(config), encoding="utf-8")
