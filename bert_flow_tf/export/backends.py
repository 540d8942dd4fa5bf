"""Open a saved model in another runtime, by a cached export."""

import contextlib
import functools
import hashlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from absl import logging

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.json_files import read_json
from bert_flow_tf.common.reading import file_digest
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.common.user_cache import cache_root, cached_folder
from bert_flow_tf.common.version import __version__
from bert_flow_tf.export.formats import ONNX, ExportSettings
from bert_flow_tf.model.saved_model import MODEL_FILE, is_saved_model, model_folder
from bert_flow_tf.runtime.model import ExportedModel, open_export
from bert_flow_tf.runtime.programs import ONNX_FILE, check_backend

if TYPE_CHECKING:
    from bert_flow_tf.model.embedder import Embedder

TENSORFLOW = "tensorflow"


class _Config(msgspec.Struct):
    code: dict[str, str] = {}


class _Flow(msgspec.Struct):
    config: _Config | None = None


class _Model(msgspec.Struct):
    pooling_code: str | None = None
    flow: _Flow | None = None


class _Parts(msgspec.Struct):
    """The code that a saved model names.

    The record's own types accept only parts whose code was imported.
    """

    model: _Model


def check_loadable(path: str | os.PathLike, backend: str, dtype: str) -> pathlib.Path:
    """Return a saved model's folder; raise `UserError` for an unsuitable one."""
    check_backend(backend)
    if dtype != DTYPES[0]:
        raise ArgumentError(
            f"dtype: found {dtype} with the backend {backend}, expected {DTYPES[0]}"
        )
    folder = model_folder(path)
    if not is_saved_model(folder):
        raise ArgumentError(
            f"backend: found {backend} with {path}, which has no {MODEL_FILE}; expected a saved "
            f"model, or the backend {TENSORFLOW}"
        )
    return folder


def open_backend(
    path: str | os.PathLike,
    backend: str,
    load: "Callable[[], Embedder]",
    *,
    dtype: str = DTYPES[0],
    truncate_dim: int | None = None,
) -> ExportedModel:
    """Return a saved model in a backend, "onnx" or "openvino".

    The first call loads the model and exports it into the user's cache, which checks the graph.
    Later calls, also of other processes, find the export by the digests of the model's files and
    of the files that register its own parts, and do not load TensorFlow.

    Args:
      path: a folder of `save`, or `ORGANISATION/MODEL` of the Hugging Face Hub.
      load: function that returns the model of `path`, with `truncate_dim` channels.

    Raises:
      UserError: the path is no saved model, a library is missing, or the export differs from the
        model.
    """
    folder = check_loadable(path, backend, dtype)
    name = _fingerprint(folder)
    if truncate_dim is not None:
        name = f"{name}-{truncate_dim}"
    export = cache_root() / "backends" / name
    cached_folder(export, ONNX_FILE, functools.partial(_write, path, load))
    return open_export(export, backend)


def _fingerprint(folder: pathlib.Path) -> str:
    """Return a digest of a model's files, code and this version."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)} {file_digest(path)}\n".encode())
    for module in _own_modules(folder):
        if file := _file_of(module):
            digest.update(f"{module} {file_digest(file)}\n".encode())
    return digest.hexdigest()[:32]


def _own_modules(folder: pathlib.Path) -> list[str]:
    """Return the modules of a model's own pooling, coupling and network."""
    model = read_json(folder / MODEL_FILE, _Parts, expected="a saved model").model
    config = model.flow.config if model.flow else None
    paths = [model.pooling_code, *(config.code if config else {}).values()]
    return sorted({path.partition(":")[0] for path in paths if path})


def _file_of(module: str) -> str | None:
    """Return a module's file; None for a notebook or a missing module."""
    if module in sys.modules:
        # A script has a file, but no spec.
        return getattr(sys.modules[module], "__file__", None)
    # A script's parts have its name, which need not be importable.
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module)
        return spec.origin if spec and spec.has_location else None
    return None


def _write(path: str | os.PathLike, load: "Callable[[], Embedder]", folder: pathlib.Path) -> None:
    """Export the model into a folder of the cache."""
    settings = ExportSettings(format=ONNX)
    # This module loads TensorFlow, which takes seconds.
    from bert_flow_tf.export.export import export_model

    logging.info("exporting %s as ONNX, once; kept in %s", path, folder)
    export_model(load(), folder, settings)
