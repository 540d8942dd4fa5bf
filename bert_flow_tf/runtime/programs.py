"""Programs of onnxruntime and openvino, from ids to embeddings.

A program is compiled twice: with all threads, which one small call needs, and with one thread,
which is faster if several calls or batches run at once.
"""

import abc
import importlib.util
import os
import pathlib
import threading
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError, suggest
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.version import ONNX_FILE, OPENVINO_FILE

# The inputs have Hugging Face's names.
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "sentence_embedding"


class Program(abc.ABC):
    """An exported model in one of the two runtimes.

    Args:
      folder: the folder of an export.
    """

    # The files that the runtime reads, the first that exists.
    files: tuple[str, ...] = (ONNX_FILE,)

    def __init__(self, folder: pathlib.Path) -> None:
        paths = [folder / name for name in self.files]
        self._path = next((path for path in paths if path.is_file()), paths[0])
        self._lock = threading.Lock()
        self._wide = self._compiled(None)
        self._narrow: Any = None

    def _compiled(self, threads: int | None) -> Any:
        with reading(self._path, "an exported model"):
            if not self._path.is_file():
                raise FileNotFoundError
            return self._compile(threads)

    @abc.abstractmethod
    def _compile(self, threads: int | None) -> Any:
        """Return the file's program; None for `threads` takes all cores."""

    @abc.abstractmethod
    def _run(self, compiled: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the program's output."""

    def __call__(self, ids: np.ndarray, mask: np.ndarray, *, alone: bool) -> np.ndarray:
        """Return embeddings, float32 [n, D], of ids and mask, int64 [n, t].

        `alone` is True if no other call runs at the same time.
        """
        compiled = self._wide if alone else self._one_thread()
        values = (ids, mask, np.zeros_like(ids))
        found = self._run(compiled, dict(zip(INPUTS, values, strict=True)))
        if not np.isfinite(found).all():
            raise UserError(f"{self._path}: gave an embedding that is not finite, expected numbers")
        return found

    def _one_thread(self) -> Any:
        with self._lock:
            if self._narrow is None:
                self._narrow = self._compiled(1)
            return self._narrow


class OnnxProgram(Program):
    """A graph in onnxruntime."""

    def _compile(self, threads: int | None) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # An exception says the same.
        if threads is not None:
            options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(
            str(self._path), options, providers=["CPUExecutionProvider"]
        )
        names = tuple(one.name for one in session.get_inputs())
        if names != INPUTS:
            raise ValueError(f"found the inputs {', '.join(names)}, expected {', '.join(INPUTS)}")
        return session

    def _run(self, compiled: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return compiled.run([OUTPUT], inputs)[0]


class OpenvinoProgram(Program):
    """A graph in openvino."""

    files = (OPENVINO_FILE, ONNX_FILE)

    def _compile(self, threads: int | None) -> Any:
        import openvino

        settings: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            # Some processors would compute in bfloat16.
            "INFERENCE_PRECISION_HINT": "f32",
        }
        if threads is not None:
            settings |= {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": cores()}
        compiled = openvino.Core().compile_model(str(self._path), "CPU", settings)
        # A request serves one call at a time.
        return compiled, threading.local()

    def _run(self, compiled: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        model, own = compiled
        if not hasattr(own, "request"):
            own.request = model.create_infer_request()
        own.request.infer(inputs)
        return own.request.get_output_tensor(0).data.copy()


_ONNX = "onnx"
_OPENVINO = "openvino"
PROGRAMS: dict[str, type[Program]] = {_ONNX: OnnxProgram, _OPENVINO: OpenvinoProgram}
_MODULES = {_ONNX: "onnxruntime", _OPENVINO: "openvino"}


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def backend_of(folder: pathlib.Path) -> str:
    """Return the backend whose program an export's folder holds."""
    return _OPENVINO if (folder / OPENVINO_FILE).is_file() else _ONNX


def check_backend(backend: str) -> None:
    """Raise `ArgumentError` for an unknown backend, or one that is not installed."""
    if backend not in PROGRAMS:
        expected = f"expected {' or '.join(PROGRAMS)}{suggest(str(backend), PROGRAMS)}"
        raise ArgumentError(f"backend: found {backend!r}, {expected}")
    module = _MODULES[backend]
    if importlib.util.find_spec(module) is None:
        raise ArgumentError(f"backend: {module} is not installed: pip install {module}")
