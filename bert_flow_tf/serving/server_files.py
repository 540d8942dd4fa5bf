"""A model's folder as TensorFlow Serving reads it: `<model>/<version>`, and the server's configuration beside these."""

import os
import pathlib
import re

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.files.outputs import FolderKind, output_folder
from bert_flow_tf.files.reading import read_file, read_text
from bert_flow_tf.model.saved_model import is_saved_model

MODELS_FILE = "models.config"
BATCHING_FILE = "batching_parameters.txt"
MONITORING_FILE = "monitoring.config"
_EXPORT = FolderKind(
    what="an export",
    marker="saved_model.pb",
    names=("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"),
)

# No path of the machine that exports: the model's folder is copied to another as it is, or mounted into a container.
_MODELS = """\
# tensorflow_model_server --model_config_file: the model that is served, and which of its versions.
# base_path is the model's folder as the official image mounts it. For a server outside a container
# run_scripts/serve.sh puts the folder's own path there; without that script, write it there by hand.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
    # The highest version; a new one replaces it once it is loaded.
    model_version_policy {{ latest {{ num_versions: 1 }} }}
  }}
}}
"""

_BATCHING = """\
# tensorflow_model_server --enable_batching --batching_parameters_file: how requests that arrive together are joined.
# A request that the model refuses fails those that it was joined with.
# A request of more rows than this is refused ...
max_batch_size { value: 4096 }
# ... and what is larger than this is run in parts.
max_execution_batch_size { value: 64 }
enable_large_batch_splitting { value: true }
# How long the first request of a batch waits for others.
batch_timeout_micros { value: 2000 }
# How many batches wait for a thread before requests are refused as UNAVAILABLE.
max_enqueued_batches { value: 128 }
# num_batch_threads is left out: one for each processor.
# allowed_batch_sizes is left out: the server fills a batch up with its first row, and a batch of nothing has none.
# Sentences need no padding here, the model does it. For the signature "tokens" it must stay false: the server pads with
# the first value of a tensor, so the padding of input_mask would be ones and be embedded. Where clients of "tokens"
# send different lengths at once, serve without batching.
pad_variable_length_inputs: false
"""

_MONITORING = """\
# tensorflow_model_server --monitoring_config_file: what Prometheus reads, at this path of the REST port.
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"
}
"""


def check_destination(
    out_dir: str | os.PathLike, version: int | None, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """Path of the version's folder below `out_dir`, where an export may be written; without a version the next one.

    `flag` is what a command calls `out_dir`, `--out=DIR`, for errors.

    Raises:
      UserError: `version` is not positive; it exists and `overwrite` is false; what is there is no export; `overwrite`
        without a version; or the place cannot be written to.
    """
    out_dir = pathlib.Path(out_dir).absolute()
    if is_saved_model(out_dir):
        raise UserError(f"{flag or out_dir}: holds a saved model, expected a folder of exports, or a new one")
    if version is None:
        if overwrite:
            message = "overwrite: found no `version`, expected that of the one to replace"
            raise ArgumentError(message, arguments=["version"])
        found = [path.name for path in out_dir.iterdir()] if out_dir.is_dir() else []
        version = 1 + max((int(name) for name in found if name.isascii() and name.isdigit()), default=0)
    if version < 1:
        raise ArgumentError(f"version: found {version}, expected a positive whole number")
    path = out_dir / str(version)
    return output_folder(path, _EXPORT, overwrite=overwrite, flag=flag and f"{flag}/{version}")


def write_server_files(base_dir: str | os.PathLike, model_name: str) -> list[pathlib.Path]:
    """Writes those of the three files that are not there; gives the paths of those that somebody has edited.

    Raises:
      UserError: the name does not fit a URL, a file cannot be read, or the folder cannot be written to.
    """
    edited = edited_server_files(base_dir, model_name)
    for path, text in _contents(base_dir, model_name).items():
        if not path.exists():
            write_atomically(path, text)
    return edited


def edited_server_files(base_dir: str | os.PathLike, model_name: str) -> list[pathlib.Path]:
    """Paths of the files that are there and differ from what would be written.

    Raises:
      UserError: the name does not fit a URL, or a file cannot be read.
    """
    edited = []
    for path, text in _contents(base_dir, model_name).items():
        if path.exists() and read_file(path, "a text file or none") != text.encode():
            edited.append(path)
    return edited


def _contents(base_dir: str | os.PathLike, model_name: str) -> dict[pathlib.Path, str]:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", model_name):
        raise UserError(
            f"model name: found {model_name!r}, the folder's name, expected letters, digits, dots, hyphens and "
            "underscores, as it is part of the server's URLs"
        )
    texts = {MODELS_FILE: _MODELS.format(name=model_name), BATCHING_FILE: _BATCHING, MONITORING_FILE: _MONITORING}
    return {pathlib.Path(base_dir) / name: text for name, text in texts.items()}


def served_name(base_dir: str | os.PathLike) -> str:
    """Name that clients ask for: the one in the `models.config` of a model's folder, also where it was edited.

    Raises:
      UserError: there is no such file, or it does not name one model.
    """
    path = pathlib.Path(base_dir) / MODELS_FILE
    text = read_text(path, "the file that an export writes there")
    names = re.findall(r"""\bname\s*:\s*["']([^"'\n]+)["']""", re.sub(r"(?m)^[ \t]*#.*$", "", text))
    if len(names) != 1:
        raise UserError(f"{path}: found {', '.join(names) or 'no name'}, expected the name of one model")
    return names[0]
