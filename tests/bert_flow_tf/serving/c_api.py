"""Runs a SavedModel through TensorFlow's C API, as a server does, in a process that imports no TensorFlow.

A program of its own: `python c_api.py WHEELS EXPORT`, with WHEELS the folder that `tensorflow` and `tensorflow_text`
are installed in. It takes the libraries of the two wheels and none of their Python. On stdin it reads JSON

    {"calls": [{"inputs": {"name:0": {"dtype": "string", "shape": [1], "values": ["text"]}}, "outputs": ["name:0"]}],
     "threads": 8}

and on stdout it writes JSON: `answers`, for every call in turn `{"outputs": [array of lists]}` or
`{"code": 3, "message": "..."}`; `threads`, for every thread the answers to all calls, which all threads make at once;
`modules`, the Python modules that were loaded.
"""

import concurrent.futures
import ctypes
import json
import math
import pathlib
import sys
import threading

# tensorflow/c/tf_datatype.h: number of the type, and what an element is in memory.
_TYPES = {"float32": (1, ctypes.c_float), "int32": (3, ctypes.c_int32), "string": (7, None)}
_ELEMENTS = dict(_TYPES.values())
# tensorflow/core/platform/ctstring_internal.h: TF_TString is three words long.
_TSTRING_SIZE = 24

_HANDLES = (
    "TF_AllocateTensor",
    "TF_GraphOperationByName",
    "TF_LoadLibrary",
    "TF_LoadSessionFromSavedModel",
    "TF_NewGraph",
    "TF_NewSessionOptions",
    "TF_NewStatus",
    "TF_TensorData",
)


class _Output(ctypes.Structure):
    """TF_Output: an operation and which of its outputs."""

    _fields_ = (("operation", ctypes.c_void_p), ("index", ctypes.c_int))


class StatusError(Exception):
    """A TF_Status that is not OK: its code, as in gRPC, and its message."""


class Library:
    """The functions of `libtensorflow_cc` of the wheels, with TensorFlow Text's operations registered."""

    def __init__(self, wheels):
        ctypes.CDLL(str(wheels / "tensorflow" / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
        self._functions = ctypes.CDLL(str(wheels / "tensorflow" / "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
        for name in _HANDLES:
            getattr(self._functions, name).restype = ctypes.c_void_p
        self._functions.TF_Message.restype = ctypes.c_char_p
        self._functions.TF_Dim.restype = ctypes.c_int64
        self._functions.TF_StringGetDataPointer.restype = ctypes.c_void_p
        self._functions.TF_StringGetSize.restype = ctypes.c_size_t
        # All that TensorFlow Text has, as in the model server, which links them all.
        for path in sorted((wheels / "tensorflow_text" / "python" / "ops").glob("*.so")):
            self.checked("TF_LoadLibrary", str(path).encode())

    def __getattr__(self, name):
        return getattr(self._functions, name)

    def checked(self, name, *arguments):
        """What the function `name` returns, given a status after `arguments`, which must be OK afterwards."""
        status = ctypes.c_void_p(self.TF_NewStatus())
        try:
            returned = getattr(self, name)(*arguments, status)
            if code := self.TF_GetCode(status):
                raise StatusError(code, self.TF_Message(status).decode())
            return returned
        finally:
            self.TF_DeleteStatus(status)

    def new_tensor(self, dtype, shape, values):
        """TF_Tensor of `values`, a flat list; the caller deletes it."""
        number, element = _TYPES[dtype]
        dims = (ctypes.c_int64 * len(shape))(*shape)
        size = ctypes.sizeof(element) if element else _TSTRING_SIZE
        tensor = ctypes.c_void_p(self.TF_AllocateTensor(number, dims, len(shape), ctypes.c_size_t(size * len(values))))
        address = self.TF_TensorData(tensor)
        if element:
            ctypes.memmove(address, (element * len(values))(*values), size * len(values))
            return tensor
        for place, value in enumerate(values):
            string, text = ctypes.c_void_p(address + place * size), value.encode(errors="surrogateescape")
            self.TF_StringInit(string)
            self.TF_StringCopy(string, text, ctypes.c_size_t(len(text)))
        return tensor

    def tensor_values(self, tensor):
        """`{"shape": [...], "values": flat list}` of a TF_Tensor of numbers."""
        shape = [self.TF_Dim(tensor, axis) for axis in range(self.TF_NumDims(tensor))]
        array = _ELEMENTS[self.TF_TensorType(tensor)] * math.prod(shape)
        values = list(array.from_address(self.TF_TensorData(tensor))) if math.prod(shape) else []
        return {"shape": shape, "values": values}


class Session:
    """A TF_Session of the SavedModel in the folder `export`, loaded with the tag `serve`."""

    def __init__(self, library, export):
        self._library = library
        self._graph = ctypes.c_void_p(library.TF_NewGraph())
        tags = (ctypes.c_char_p * 1)(b"serve")
        options = ctypes.c_void_p(library.TF_NewSessionOptions())
        self._session = ctypes.c_void_p(
            library.checked(
                "TF_LoadSessionFromSavedModel", options, None, str(export).encode(), tags, 1, self._graph, None
            )
        )

    def _outputs(self, names):
        found = (_Output * len(names))()
        for place, name in enumerate(names):
            operation, _, index = name.partition(":")
            handle = self._library.TF_GraphOperationByName(self._graph, operation.encode())
            if handle is None:
                raise LookupError(f"the graph has no operation {operation}")
            found[place] = _Output(handle, int(index))
        return found

    def run(self, inputs, outputs):
        """Values of the tensors named in `outputs`; `inputs` is as in the module's docstring."""
        library = self._library
        fed = (ctypes.c_void_p * len(inputs))(*[library.new_tensor(**value).value for value in inputs.values()])
        fetched = (ctypes.c_void_p * len(outputs))()
        try:
            given = (self._outputs(list(inputs)), fed, len(inputs))
            wanted = (self._outputs(outputs), fetched, len(outputs))
            library.checked("TF_SessionRun", self._session, None, *given, *wanted, None, 0, None)
            return [library.tensor_values(ctypes.c_void_p(tensor)) for tensor in fetched]
        finally:
            for tensor in (*fed, *filter(None, fetched)):
                library.TF_DeleteTensor(ctypes.c_void_p(tensor))

    def answer(self, call):
        """What `call` gives: `{"outputs": [...]}`, or `{"code": ..., "message": ...}`."""
        try:
            return {"outputs": self.run(**call)}
        except StatusError as error:
            return dict(zip(("code", "message"), error.args, strict=True))


def at_once(session, calls, n_threads):
    """For every thread the answers to `calls`; each begins with another of them, so that different calls meet."""
    together = threading.Barrier(n_threads)

    def work(thread):
        together.wait()
        order = [(thread + i) % len(calls) for i in range(len(calls))]
        found = {i: session.answer(calls[i]) for i in order}
        return [found[i] for i in range(len(calls))]

    with concurrent.futures.ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, range(n_threads)))


def main():
    """Answers what stdin asks."""
    wheels, export = map(pathlib.Path, sys.argv[1:])
    asked = json.load(sys.stdin)
    session = Session(Library(wheels), export)
    answers = [session.answer(call) for call in asked["calls"]]
    threads = at_once(session, asked["calls"], asked["threads"])
    json.dump({"answers": answers, "threads": threads, "modules": sorted(sys.modules)}, sys.stdout)


if __name__ == "__main__":
    main()
