"""`bert-flow query`: embeddings and cosines from a model server."""

import json
import pathlib
from collections.abc import Iterator, Sequence

import click

from bert_flow_tf.commands.options import Number, WholeNumber
from bert_flow_tf.commands.outputs import own_file
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_file
from bert_flow_tf.files.sentence_files import STDIN, read_sentences
from bert_flow_tf.serving.server_files import MODELS_FILE, served_name

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
@click.option("--version", type=WholeNumber(0), metavar="N", help="The model's version.  [default: the newest]")
@click.option(
    "--signature",
    type=click.Choice([_DEFAULT_SIGNATURE, "pooled"]),
    help=f"pooled: embeddings before the flow.  [default: {_DEFAULT_SIGNATURE}]",
)
@click.option("--timeout", type=Number(), default=10.0, metavar="S", help="Seconds that a request may take.")
@click.option("--batch_size", type=WholeNumber(1), default=32, metavar="N", help="Rows per request.")
@click.option("--input", "input_file", metavar="FILE", help="Sentences, one per line, in UTF-8; - is standard input.")
@click.option("--pair", "pairs", nargs=2, multiple=True, metavar="A B", help="Two sentences to compare; may recur.")
@click.option("--similarity", metavar="FILE", help="Pairs to compare: two columns, a tab between; - is standard input.")
@click.option("--status", is_flag=True, help="Print the model's versions and their states.")
@click.option("--out", metavar="FILE.npy", help="Write the embeddings, or the cosines, as one float32 array.")
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
def query(
    sentences: Sequence[str],
    target: str,
    model: str,
    version: int | None,
    signature: str | None,
    timeout: float,
    batch_size: int,
    input_file: str | None,
    pairs: Sequence[tuple[str, str]],
    similarity: str | None,
    status: bool,
    out: str | None,
    overwrite: bool,
) -> None:
    """Ask a model server for embeddings of sentences or for the cosines of pairs.

    \b
    bert-flow query --target http://localhost:8501 --model stsb "A small boat crosses the lake."
    bert-flow query --target grpc://localhost:8500 --model stsb --input sentences.txt --out embeddings.npy
    bert-flow query --target http://localhost:8501 --model stsb --pair "A boat." "A ship." --pair "A boat." "Noon."
    bert-flow query --target http://localhost:8501 --model stsb --status

    Answers are JSON, one line per sentence ("sentence", "embedding") or pair ("sentence_a", "sentence_b", "cosine"),
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
    if overwrite and out is None:
        raise UserError("--overwrite: found without --out, expected a file that may be replaced")
    if out is not None:
        if not out.endswith(".npy"):
            raise UserError(f"--out={out}: expected a name that ends in .npy")
        own_file(out, overwrite=overwrite)
    if input_file is not None:
        sentences = list(read_sentences(input_file, file_format="text"))
    elif similarity is not None:
        pairs = list(_read_pairs(similarity))

    from bert_flow_tf.serving.client import connect

    with connect(target, _name(model), version, timeout=timeout) as client:
        if status:
            for number, state in client.status():
                click.echo(f"{number}\t{state}")
            return
        if of_pairs:
            values = client.similarity([a for a, _ in pairs], [b for _, b in pairs], batch_size)
            records = [{"sentence_a": a, "sentence_b": b} for a, b in pairs]
        else:
            values = client.encode(sentences, batch_size, signature=signature or _DEFAULT_SIGNATURE)
            records = [{"sentence": sentence} for sentence in sentences]
    if out is not None:
        # NumPy takes a moment to load.
        from bert_flow_tf.files.embedding_files import write_array

        with new_file(out) as temporary:
            write_array(temporary, values)
        click.echo(f"results written: {out}")
        return
    for record, value in zip(records, values, strict=True):
        line = json.dumps(record | {"cosine" if of_pairs else "embedding": value.tolist()}, ensure_ascii=False)
        # Bytes: the terminal's own encoding may lack what a sentence has.
        click.echo(f"{line}\n".encode(), nl=False)


def _name(model: str) -> str:
    """The model's name, given that or an exported model's folder."""
    if (pathlib.Path(model) / MODELS_FILE).is_file():
        return served_name(model)
    if "/" in model:
        raise UserError(f"--model={model}: found no {MODELS_FILE} there, expected a model's name or exported folder")
    return model


def _read_pairs(name: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_sentences(name, file_format="text"), 1):
        pair = line.split("\t")
        if len(pair) != 2:
            place = "standard input" if name == STDIN else name
            raise UserError(f"{place}, line {number}: number of columns: found {len(pair)}, expected 2, a tab between")
        yield pair[0], pair[1]
