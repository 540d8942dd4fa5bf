"""`bert-flow check-served`: compare a server's embeddings with the export's."""

import json
import pathlib
import re
import urllib.error
import urllib.request
from typing import Any

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, refuse
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import is_export, reading
from bert_flow_tf.runtime.description import read_description
from bert_flow_tf.vectors.similarities import cosines

_LARGEST_DIFFERENCE = 1e-4


@command(
    epilog="\b\nbert-flow check-served --export exported/stsb/1 "
    "http://localhost:8501/v1/models/stsb"
)
@click.argument("url")
@option(
    "--export",
    "folder",
    required=True,
    metavar="DIR",
    help="Folder of the export, or of its version.",
)
@option("--name", metavar="NAME", help="Model's name, for an address that ends in /embeddings.")
def check_served(url: str, folder: str, name: str | None) -> None:
    """Send an export's probe sentences to a server and compare.

    URL is TensorFlow Serving's /v1/models/NAME, or ends in /embeddings (OpenAI) or /embed. The exit
    status is 1 if an embedding differs by more than 1e-4, or 1e-4 of the largest value if that is
    above 1.
    """
    if not url.endswith("/embeddings"):
        refuse(("name",), url)
    # A SavedModel's folder has the description among its other assets.
    assets = pathlib.Path(folder, "assets.extra")
    probes = read_description(assets if is_export(assets) else pathlib.Path(folder)).probes
    texts = list(probes)
    expected = np.array(list(probes.values()), np.float32)
    with reading(url, "a server of embeddings"):
        found = np.array(_served(url, texts, name), np.float32)
    if found.shape != expected.shape:
        raise UserError(
            f"{url}: found embeddings of shape {list(found.shape)}, expected {list(expected.shape)}"
        )
    difference = np.abs(found - expected).max()
    largest = np.abs(expected).max()
    click.echo(
        f"{url}: largest difference {difference:.1e} for values up to {largest:.1e}, {len(texts)} "
        "sentences"
    )
    if not difference <= _LARGEST_DIFFERENCE * max(1.0, largest):
        cosine = cosines(found, expected).min()
        advice = "; only the norms differ: export with --normalize" if cosine > 1 - 1e-6 else ""
        differs = (
            f"the server gives other embeddings, smallest cosine with the export's {cosine:.6f}"
        )
        click.echo(f"{differs}{advice}", err=True)
        raise SystemExit(1)


def _served(url: str, texts: list[str], name: str | None) -> list[list[float]]:
    """Return a server's embeddings; the address decides the form of the request."""
    if url.endswith("/embed"):
        return _answer(url, {"inputs": texts})
    if url.endswith("/embeddings"):
        rows = _answer(url, {"input": texts, "model": name or "default"})["data"]
        return [row["embedding"] for row in sorted(rows, key=lambda row: row["index"])]
    found = _answer(
        re.sub("(:predict)?$", ":predict", url, count=1), {"inputs": {"sentences": texts}}
    )["outputs"]
    return found["embedding"] if isinstance(found, dict) else found


def _answer(url: str, request: dict[str, Any]) -> Any:
    data = json.dumps(request).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, {"Content-Type": "application/json"})
        ) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise UserError(
            f"{url}: {error.code} {error.reason}: {error.read(300).decode(errors='replace')}"
        ) from error
