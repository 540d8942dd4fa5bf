"""`bert-flow query`: embeddings and cosines from a model server."""

import json
import os
import pathlib
import tempfile

import click

from bert_flow_tf.commands.results import results_file
from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.server_files import MODELS_FILE, served_name

_STDIN = "-"
_DEFAULT_SIGNATURE = "serving_default"


@click.command()
@click.argument("sentences", nargs=-1, metavar="[SENTENCE]...")
@click.option("--target", required=True, metavar="URL", help="grpc://host:port, http://host:port or https://host:port.")
@click.option(
    "--model",
    required=True,
    metavar="NAME",
    help="The model's name at the server: its folder's when it was exported. Or that folder, as given to serve.sh.",
)
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Version of it.  [default: the newest]")
@click.option(
    "--signature",
    type=click.Choice([_DEFAULT_SIGNATURE, "pooled"]),
    help=f"pooled: embeddings before the flow.  [default: {_DEFAULT_SIGNATURE}]",
)
@click.option(
    "--timeout", type=float, default=10.0, show_default=True, metavar="S", help="Seconds that a request may take."
)
@click.option(
    "--batch_size", type=click.IntRange(min=1), default=32, show_default=True, metavar="N", help="Most rows a request."
)
@click.option("--input", "input_file", metavar="FILE", help="Sentences, one a line, in UTF-8; - is standard input.")
@click.option("--pair", "pairs", nargs=2, multiple=True, metavar="A B", help="Two sentences to compare; may recur.")
@click.option("--similarity", metavar="FILE", help="Pairs to compare: two columns, a tab between; - is standard input.")
@click.option("--status", is_flag=True, help="Print the model's versions and their states.")
@click.option("--out", metavar="FILE.npy", help="Write the embeddings, or the cosines, as one float32 array.")
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def query(
    sentences,
    target,
    model,
    version,
    signature,
    timeout,
    batch_size,
    input_file,
    pairs,
    similarity,
    status,
    out,
    overwrite,
):
    """Ask a model server for embeddings of sentences or for the cosines of pairs.

    \b
    bert-flow query --target http://localhost:8501 --model stsb "A small boat crosses the lake."
    bert-flow query --target grpc://localhost:8500 --model stsb --input sentences.txt --out embeddings.npy
    bert-flow query --target http://localhost:8501 --model stsb --pair "A boat." "A ship." --pair "A boat." "Noon."
    bert-flow query --target http://localhost:8501 --model stsb --status

    Answers are JSON, one line a sentence ("sentence", "embedding") or a pair ("sentence_a", "sentence_b", "cosine"),
    unless --out takes them. gRPC needs some seconds to load TensorFlow; REST (http) does not, and gives the same
    numbers.
    """
    given = {
        "SENTENCE": sentences,
        "--input": input_file is not None,
        "--pair": pairs,
        "--similarity": similarity is not None,
        "--status": status,
    }
    names = [name for name, value in given.items() if value]
    if len(names) != 1:
        raise UserError(f"found {' and '.join(names) or 'no question'}, expected one of {', '.join(given)}")
    of_pairs = bool(pairs) or similarity is not None
    if signature is not None and (of_pairs or status):
        raise UserError(f"--signature={signature}: found with {names[0]}, expected sentences to embed")
    if out is not None and status:
        raise UserError(f"--out={out}: found with --status, expected sentences or pairs")
    path = _npy_file(out, overwrite)
    if input_file is not None:
        sentences = _read_lines(input_file, "--input")
    elif similarity is not None:
        pairs = _read_pairs(similarity)

    from bert_flow_tf.serving.client import connect

    with connect(target, _name(model), version, timeout=timeout) as client:
        if status:
            for number, state in client.status():
                click.echo(f"{number}\t{state}")
            return
        if of_pairs:
            values = client.similarity([a for a, _ in pairs], [b for _, b in pairs], batch_size)
        else:
            values = client.encode(sentences, batch_size, signature=signature or _DEFAULT_SIGNATURE)
    if path is not None:
        _write_npy(path, values)
        click.echo(f"results written: {path}")
    elif of_pairs:
        for (a, b), cosine in zip(pairs, values.tolist(), strict=True):
            _write_line({"sentence_a": a, "sentence_b": b, "cosine": cosine})
    else:
        for sentence, embedding in zip(sentences, values, strict=True):
            _write_line({"sentence": sentence, "embedding": embedding.tolist()})


def _name(model):
    """The model's name, where that or an exported model's folder is given."""
    if (pathlib.Path(model) / MODELS_FILE).is_file():
        return served_name(model)
    if "/" in model:
        raise UserError(f"--model={model}: found no {MODELS_FILE} there, expected a model's name or exported folder")
    return model


def _npy_file(out, overwrite):
    """pathlib.Path of the file for the array, or None, after a look at whether it may be written."""
    if out is None:
        if overwrite:
            raise UserError("--overwrite: found without --out, expected a file that may be replaced")
        return None
    if not out.endswith(".npy"):
        raise UserError(f"--out={out}: expected a name that ends in .npy")
    return results_file(out, flag=f"--out={out}", overwrite=overwrite)


def _read_lines(name, flag):
    """Lines of a UTF-8 file or of standard input; an empty one is an empty sentence, so that rows stay with lines."""
    try:
        data = click.get_binary_stream("stdin").read() if name == _STDIN else pathlib.Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"{flag}={name}: cannot be read ({error.strerror}), expected a text file") from error
    place = "standard input" if name == _STDIN else name
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{place}, line {line}: found byte 0x{data[error.start]:02x}, expected UTF-8") from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if not lines[-1] else lines


def _read_pairs(name):
    pairs = [tuple(line.split("\t")) for line in _read_lines(name, "--similarity")]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:
            place = "standard input" if name == _STDIN else name
            raise UserError(f"{place}, line {number}: found {len(pair)} columns, expected 2, a tab between")
    return pairs


def _write_npy(path, values):
    import numpy as np

    from bert_flow_tf.atomic import make_directory

    folder = path.absolute().parent
    make_directory(folder)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, values)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        pathlib.Path(name).unlink(missing_ok=True)


def _write_line(record):
    # Bytes: the terminal's own encoding may lack what a sentence has.
    click.echo((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8"), nl=False)
