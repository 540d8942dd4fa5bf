"""Programs of onnxruntime and openvino, from ids to embeddings.

A program is compiled twice: with all threads, which one small call needs, and with one thread,
which is faster if several calls or batches run at once.
"""

import abc
import ctypes
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
CPU_PROVIDER = "CPUExecutionProvider"


class Program(abc.ABC):
    """An exported model in one of the two runtimes.

    Args:
      folder: the folder of an export.
      threads: the most threads of a call; None for one for each core.
      provider: onnxruntime's execution provider.
    """

    # The files that the runtime reads, the first that exists.
    files: tuple[str, ...] = (ONNX_FILE,)

    def __init__(
        self, folder: pathlib.Path, threads: int | None = None, provider: str = CPU_PROVIDER
    ) -> None:
        paths = [folder / name for name in self.files]
        self._path = next((path for path in paths if path.is_file()), paths[0])
        self._threads = threads
        self._provider = provider
        self._lock = threading.Lock()
        self._compiled: dict[int | None, Any] = {}
        self._with_threads(threads)

    def start_anew(self) -> None:
        """Compile again at the next call, in a forked child."""
        # To free a program is to wait for its threads, which are not in the child, so it is kept.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._compiled))
        self._lock = threading.Lock()
        self._compiled = {}

    def _with_threads(self, threads: int | None) -> Any:
        """Return the program compiled for so many threads."""
        with self._lock:
            if threads not in self._compiled:
                with reading(self._path, "an exported model"):
                    if not self._path.is_file():
                        raise FileNotFoundError
                    self._compiled[threads] = self._compile(threads)
            return self._compiled[threads]

    @abc.abstractmethod
    def _compile(self, threads: int | None) -> Any:
        """Return the file's program; None for `threads` takes all cores."""

    @abc.abstractmethod
    def _inputs(self, compiled: Any) -> list[str]:
        """Return the names of the program's inputs."""

    @abc.abstractmethod
    def _run(self, compiled: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the program's output."""

    def __call__(self, ids: np.ndarray, mask: np.ndarray, *, alone: bool) -> np.ndarray:
        """Return embeddings, float32 [n, D], of ids and mask, int64 [n, t].

        `alone` is True if no other call runs at the same time.
        """
        # A second copy of the program would double the memory of another device.
        is_wide = alone or self._provider != CPU_PROVIDER
        compiled = self._with_threads(self._threads if is_wide else 1)
        values = dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))
        found = self._run(compiled, {name: values[name] for name in self._inputs(compiled)})
        if not np.isfinite(found).all():
            raise UserError(f"{self._path}: gave an embedding that is not finite, expected numbers")
        return found


class OnnxProgram(Program):
    """A graph in onnxruntime."""

    def _compile(self, threads: int | None) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # An exception says the same.
        if threads is not None:
            options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(
            str(self._path), options, providers=[*dict.fromkeys((self._provider, CPU_PROVIDER))]
        )
        names = self._inputs(session)
        if not set(names) <= set(INPUTS):
            raise ValueError(f"found the inputs {', '.join(names)}, expected {', '.join(INPUTS)}")
        return session

    def _inputs(self, compiled: Any) -> list[str]:
        return [one.name for one in compiled.get_inputs()]

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
        if threads == 1:
            settings |= {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": self._threads or cores()}
        elif threads is not None:
            settings["INFERENCE_NUM_THREADS"] = threads
        compiled = openvino.Core().compile_model(str(self._path), "CPU", settings)
        # A request serves one call at a time.
        return compiled, threading.local()

    def _inputs(self, compiled: Any) -> list[str]:
        return [one.any_name for one in compiled[0].inputs]

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


def check_provider(provider: str, backend: str) -> None:
    """Raise `ArgumentError` for a provider that onnxruntime does not have."""
    known = [CPU_PROVIDER]
    if backend == _ONNX:
        import onnxruntime

        known = onnxruntime.get_available_providers()
    if provider not in known:
        expected = f"expected {' or '.join(known)}{suggest(str(provider), known)}"
        raise ArgumentError(f"provider: found {provider!r} with {_MODULES[backend]}, {expected}")
