"""What the commands write their results into: refused before any work where it may not be written, then there whole."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.files.outputs import FolderKind, output_folder

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from bert_flow_tf.api import BertFlow

FOLDER_RESULTS = "results.json"


def write_results(path: pathlib.Path, record: Any) -> None:
    """Writes the record as JSON, whole or not at all, and says so on stdout; makes the folders above it."""
    from bert_flow_tf.files.json_files import write_json

    write_json(path, record)
    click.echo(f"results written: {path}")


def results_folder(out: str, *, analysis: str, overwrite: bool) -> pathlib.Path:
    """Path of the folder `--out` for an analysis, which may replace one of the same kind; nothing is made yet.

    Raises:
      UserError: something is there that may not be replaced, or the place cannot be written to.
    """
    kind = FolderKind(
        f"an `analyze {analysis}` folder",
        FOLDER_RESULTS,
        (FOLDER_RESULTS, "*.png", "*.svg"),
        lambda path: _analysis_in(path) == analysis,
    )
    return output_folder(out, kind, overwrite=overwrite, flag=f"--out={out}")


def write_results_folder(path: pathlib.Path, record: Any, figures: Mapping[str, "Figure"]) -> None:
    """Makes the folder of an analysis, whole or not at all: the record as `results.json`, each figure as PNG and SVG.

    `figures` are by their files' name without ending.
    """
    from bert_flow_tf.evaluation.plots import write_figure
    from bert_flow_tf.files.atomic import new_folder
    from bert_flow_tf.files.json_files import write_json

    with new_folder(path) as folder:
        folder.mkdir()
        write_json(folder / FOLDER_RESULTS, record)
        for name, figure in figures.items():
            write_figure(figure, folder, name)
    click.echo(f"written: {path}/{FOLDER_RESULTS} and plots beside it")


def _analysis_in(path: pathlib.Path) -> str | None:
    """The kind of analysis that a results file holds; None where it holds something else."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("kind")
    except (OSError, ValueError, AttributeError):
        return None


def pooled_embeddings(loaded: "BertFlow", sentences: Sequence[str], *, distinct: bool = False) -> "np.ndarray":
    """Embeddings, float32 [n, D], before the flow; one row for sentences of the same word pieces where `distinct`."""
    from bert_flow_tf.encoder import stream

    pieces = stream.tokenize(loaded.tokenizer, sentences, loaded.max_seq_length)
    if distinct:
        pieces, _ = stream.distinct(pieces)
    return stream.embed(loaded.encoder, loaded.tokenizer, pieces, loaded.max_seq_length)
