"""What the commands write their results into: refused before any work where it may not be written, then there whole."""

import contextlib
import importlib.metadata
import json
import pathlib
import platform
import tempfile

import click

from bert_flow_tf.errors import UserError

FOLDER_RESULTS = "results.json"
_LIBRARIES = (
    "bert-flow-tf",
    "numpy",
    "scipy",
    "scikit-learn",
    "tensorflow",
    "tensorflow-text",
    "tensorflow-probability",
    "tf-keras",
    "rapidfuzz",
)
# Extras, which need not be there.
_OPTIONAL_LIBRARIES = ("wordfreq", "tensorflow-datasets")


def versions():
    """dict of Python's version and of those of the libraries that figures come from."""
    found = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _LIBRARIES}
    for name in _OPTIONAL_LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def results_file(path, *, flag, overwrite):
    """pathlib.Path of the file for results, after a look at whether it may be written; nothing is made yet.

    Args:
      path: the file.
      flag: what to call it in an error: `--out=FILE`, or the path where no flag named it.
      overwrite: whether it may be there.

    Raises:
      UserError: it is there, or is a folder, or its folder cannot be written to.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise UserError(f"{flag}: found a folder, expected a file's name")
    if path.exists() and not overwrite:
        raise UserError(f"{flag}: exists, expected a new file (--out names another) or --overwrite")
    check_writable(path, flag)
    return path


def write_results(path, record):
    """Writes the record as JSON, whole or not at all, and says so on stdout; makes the folders above it."""
    from bert_flow_tf.atomic import make_directory, write_atomically

    make_directory(path.absolute().parent)
    write_atomically(path, _to_json(record))
    click.echo(f"results written: {path}")


def results_folder(out, *, analysis, overwrite):
    """pathlib.Path of the folder for an analysis, after a look at whether it may be made; nothing is made yet.

    Args:
      out: value of `--out`.
      analysis: its kind, which results of an earlier one must have to be replaced.
      overwrite: whether an earlier one may be replaced.

    Raises:
      UserError: something is there that may not be replaced, or the place cannot be written to.
    """
    path, flag = pathlib.Path(out), f"--out={out}"
    if path.exists() and not overwrite:
        raise UserError(f"{flag}: exists, expected a new folder or --overwrite")
    if path.exists():
        try:
            found = json.loads((path / FOLDER_RESULTS).read_text(encoding="utf-8")).get("analysis")
        except (OSError, ValueError, AttributeError):
            found = None
        if found != analysis:
            raise UserError(f"{flag}: holds no {FOLDER_RESULTS} of `analyze {analysis}`, expected one to overwrite")
        # The whole folder is replaced, so whatever else was put there would be lost.
        others = [entry.name for entry in sorted(path.iterdir()) if not _is_analysis_file(entry)]
        if others:
            raise UserError(f"{flag}: holds {others[0]} beside an analysis, expected nothing else to overwrite")
    check_writable(path, flag)
    return path


def write_results_folder(path, record, figures):
    """Makes the folder of an analysis, whole or not at all: the record as `results.json`, each figure as PNG and SVG.

    Args:
      path: as `results_folder` gives it.
      record: dict.
      figures: dict of file name without ending -> `matplotlib.figure.Figure`.
    """
    from bert_flow_tf.atomic import new_folder
    from bert_flow_tf.evaluation.plots import write_figure

    with new_folder(path) as folder:
        folder.mkdir()
        (folder / FOLDER_RESULTS).write_text(_to_json(record), encoding="utf-8")
        for name, figure in figures.items():
            write_figure(figure, folder, name)
    click.echo(f"written: {path}/{FOLDER_RESULTS} and plots beside it")


def _is_analysis_file(entry):
    return entry.is_file() and (entry.name == FOLDER_RESULTS or entry.suffix in (".png", ".svg"))


def check_writable(path, flag):
    """Raises `UserError`, beginning with `flag`, unless files can be made in the nearest folder above the path."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    # A try, since permissions say nothing of a disk that is full or mounted to be read only.
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{flag}: {folder} cannot be written to ({error.strerror}), expected one that can") from error


def _to_json(record):
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"
