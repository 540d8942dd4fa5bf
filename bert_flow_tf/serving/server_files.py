"""The files that `tensorflow_model_server` is configured with, beside the version folders of a model."""

import pathlib
import re

from bert_flow_tf.atomic import make_directory, write_atomically
from bert_flow_tf.errors import UserError

MODELS_FILE = "models.config"
BATCHING_FILE = "batching_parameters.txt"
MONITORING_FILE = "monitoring.config"

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


def write_server_files(base_dir, model_name, *, overwrite=False, keep_changed=False):
    """Paths of the files that were left as they are because somebody has changed them; empty unless `keep_changed`.

    Writes `models.config`, `batching_parameters.txt` and `monitoring.config`, which `run_scripts/serve.sh` starts a
    server with.

    Args:
      base_dir: the model's folder, which the versions are in.
      model_name: name that clients ask for.
      overwrite: replace files that differ from what would be written.
      keep_changed: leave such files as they are, and write the others.

    Raises:
      UserError: the name does not fit a URL; a file differs, and neither option says what to do; or the folder cannot
        be written to. In the first two cases nothing is written.
    """
    changed = check_server_files(base_dir, model_name)
    contents, base_dir = _contents(model_name), pathlib.Path(base_dir)
    if changed and not overwrite and not keep_changed:
        raise UserError(
            f"{changed[0]}: exists and is not what would be written (it may have been edited), expected to be told to "
            "overwrite it"
        )
    kept = [] if overwrite else changed
    make_directory(base_dir)
    for name, text in contents.items():
        path = base_dir / name
        if path in kept or (path.exists() and not _differs(path, text)):
            continue
        try:
            write_atomically(path, text)
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror}), expected a place for it") from error
    return kept


def served_name(base_dir):
    """Name that clients ask for: the one in the `models.config` of a model's folder, also where it was edited.

    Raises:
      UserError: there is no such file, or it does not name one model.
    """
    path = pathlib.Path(base_dir) / MODELS_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{path}: cannot be read ({reason}), expected the file that an export writes there") from error
    names = re.findall(r"""\bname\s*:\s*["']([^"'\n]+)["']""", re.sub(r"(?m)^\s*#.*$", "", text))
    if len(names) != 1:
        raise UserError(f"{path}: found {', '.join(names) or 'no name'}, expected the name of one model")
    return names[0]


def check_server_files(base_dir, model_name):
    """Paths of the files that are there and differ from what would be written.

    Raises:
      UserError: the name does not fit a URL, or a file cannot be read.
    """
    return [
        path for name, text in _contents(model_name).items() if _differs(path := pathlib.Path(base_dir) / name, text)
    ]


def _contents(model_name):
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", model_name):
        raise UserError(
            f"model name: found {model_name!r}, expected letters, digits, dots, hyphens and underscores, as it is part "
            "of the server's URLs"
        )
    return {
        MODELS_FILE: _MODELS.format(name=model_name),
        BATCHING_FILE: _BATCHING,
        MONITORING_FILE: _MONITORING,
    }


def _differs(path, text):
    """Whether something else than `text` is at `path`; nothing is not something else."""
    try:
        return path.read_bytes() != text.encode()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}), expected a text file or none") from error
