"""`bert-flow explore`: a local page of a sentence's nearest neighbours, before the flow and after it."""

import importlib.util
import socket

import click

from bert_flow_tf.commands.options import (
    HELP_OF_MODEL,
    ModelOptions,
    SentenceInput,
    WholeNumber,
    check_model,
    input_options,
)
from bert_flow_tf.errors import UserError, pip_install

_HOST = "127.0.0.1"


@click.command()
@click.option("--model", required=True, metavar="RUN", help=HELP_OF_MODEL)
@input_options
@click.option("--port", type=WholeNumber(0, 65535), default=8600, metavar="N", help="Of the page; 0: any free one.")
@click.option("--neighbours", type=WholeNumber(1), default=10, metavar="N", help="Sentences to show on each side.")
def explore(model: str, source: SentenceInput, port: int, neighbours: int) -> None:
    """Show the nearest neighbours of sentences that you type, before the flow and after it, on a page of this machine.

    \b
    bert-flow fit --bert_hub demo --input sentences.txt --out my_model
    bert-flow explore --model my_model --input sentences.txt

    The model has a flow; the neighbours are the sentences of the input. Other machines cannot reach the page. Ctrl-C
    ends it. It needs pip install 'bert-flow-tf[explore]'.
    """
    if importlib.util.find_spec("werkzeug") is None:
        raise UserError(f"explore: Werkzeug is not installed: {pip_install('explore')}")
    check_model(model, "a finished run or a saved model")
    sentences = list(source.read())
    if not sentences:
        raise UserError(f"--input={source.path}: found no sentence, expected at least one")
    with socket.socket() as listening:
        # A port that was just in use may be used again.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_HOST, port))
        except OSError as error:
            raise UserError(f"--port={port}: cannot be listened on ({error.strerror}), expected a free one") from error
        listening.listen()
        # TensorFlow takes seconds to load.
        loaded = ModelOptions(model=model).load()
        from bert_flow_tf.report.explorer import Explorer, Neighbours, serve

        page = Explorer(Neighbours(loaded, sentences), neighbours)
        click.echo(f"page: http://{_HOST}:{listening.getsockname()[1]}/ (Ctrl-C ends it)")
        serve(page, listening)
