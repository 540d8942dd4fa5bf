"""Write maps, load them again, and export them for other programs."""

import json
import os
import pathlib
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from glow.arrays import check_arrays, write_arrays
from glow.chain import Chain
from glow.flow import Glow
from glow.maps import AffineMap, VectorMap, code_of_kind, recipe_of
from glow.parts import is_part_path, resolve_part, warn_if_changed

RECIPES_FILE = "calibration.json"
ARRAYS_FILE = "calibration.npz"
_KINDS: dict[str, Any] = {AffineMap.kind: AffineMap, Glow.kind: Glow}
_OPSET = 15
# Weights of more bytes have a file of their own, because a reader would hold them twice.
LARGE_WEIGHTS = 2**28
_PAGE = 4096


def write_maps(folder: str | os.PathLike, maps: Sequence[VectorMap]) -> None:
    """Write the maps' recipes, `calibration.json`, and arrays, `calibration.npz`.

    Raises `ValueError`, and writes nothing, if a map cannot be identified.
    """
    recipes = {"maps": [recipe_of(one) for one in maps]}
    text = f"{json.dumps(recipes, indent=2)}\n"
    pathlib.Path(folder, RECIPES_FILE).write_text(text, encoding="utf-8")
    variables = Chain(maps, maps[0].event_size).variables_by_path
    arrays = {name: variable.numpy() for name, variable in variables.items()}
    write_arrays(pathlib.Path(folder, ARRAYS_FILE), arrays)


def read_maps(folder: str | os.PathLike) -> list[VectorMap]:
    """Return the maps of a folder; raise `ValueError` for other files."""
    path = pathlib.Path(folder, RECIPES_FILE)
    try:
        recipes = json.loads(path.read_text(encoding="utf-8"))["maps"]
        if not isinstance(recipes, list):
            raise ValueError(f"maps: found {recipes!r:.40}, expected a list")
        path = path.with_name(ARRAYS_FILE)
        with np.load(path) as file:
            arrays = dict(file)
        return made_maps(recipes, arrays)
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read as a calibration: {error}") from error


def made_maps(
    recipes: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]
) -> list[VectorMap]:
    """Return the maps of recipes, with the arrays of `Chain.variables_by_path`.

    Raises `ValueError` if a kind is unknown, or an array is missing, unexpected or not finite, or
    has another shape.
    """
    maps = []
    for i, recipe in enumerate(recipes):
        try:
            maps.append(_made(recipe))
        except KeyError as error:
            raise ValueError(f"maps[{i}]: {error} is missing") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"maps[{i}]: {error}") from error
    variables = Chain(maps, maps[0].event_size).variables_by_path if maps else {}
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    check_arrays(arrays, shapes, "the calibration")
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return maps


def _made(recipe: Mapping[str, Any]) -> VectorMap:
    """Return a recipe's map with initial values."""
    kind = str(recipe["kind"])
    if kind in _KINDS:
        return _KINDS[kind].from_recipe(recipe)
    if not is_part_path(kind):
        expected = f"expected {', '.join(_KINDS)}, or `module:name` of a class"
        raise ValueError(f"kind: found {kind!r}, {expected}")
    made = resolve_part(kind).from_recipe(recipe)
    warn_if_changed(recipe.get("code", {}), code_of_kind(kind).get("code", {}))
    return made


def check_exportable(chain: Chain) -> None:
    """Raise `ValueError` for a map that cannot be identified, as `write_maps` does."""
    for one in chain.maps:
        try:
            recipe_of(one)
        except ValueError as error:
            raise ValueError(f"calibration: {error}") from error


def write_onnx(
    function: Callable[..., dict[str, tf.Tensor]],
    inputs: Sequence[tf.TensorSpec],
    path: str | os.PathLike,
    weights: Mapping[str, tf.Variable] | None = None,
) -> None:
    """Write a TensorFlow function, from tensors to named tensors, as ONNX.

    The function is called with the inputs, and then with the values of `weights`, in their order.
    """
    import onnx
    import tf2onnx

    # tf2onnx copies every constant dozens of times, so large weights are inputs of the program that
    # it sees, and become constants in the file.
    values = {name.replace("/", "."): variable for name, variable in (weights or {}).items()}
    # TensorFlow's optimizer makes a tensor of each input whose shape it knows, so only the function
    # learns the shapes of weights.
    specs = [
        tf.TensorSpec([None] * value.shape.rank, value.dtype, name)
        for name, value in values.items()
    ]

    def shaped(*arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        for argument, value in zip(arguments[len(inputs) :], values.values(), strict=True):
            argument.set_shape(value.shape)
        return function(*arguments)

    program, _ = tf2onnx.convert.from_function(
        tf.function(shaped, autograph=False), input_signature=[*inputs, *specs], opset=_OPSET
    )
    own_inputs = [one for one in program.graph.input if one.name not in values]
    del program.graph.input[:]
    program.graph.input.extend(own_inputs)
    used = {name for node in program.graph.node for name in node.input}
    kept = {name: value for name, value in values.items() if name in used}
    size = sum(value.shape.num_elements() * value.dtype.size for value in kept.values())
    data = pathlib.Path(f"{os.fspath(path)}_data") if size > LARGE_WEIGHTS else None
    with open(path, "wb") as file:
        file.write(program.SerializeToString())
        for name, value in kept.items():
            array = value.numpy()
            constant = (
                onnx.numpy_helper.from_array(array, name)
                if data is None
                else _external(array, name, data)
            )
            # The concatenation of two messages of protobuf is their union.
            part = onnx.ModelProto(graph=onnx.GraphProto(initializer=[constant]))
            file.write(part.SerializeToString())


def _external(array: np.ndarray, name: str, path: pathlib.Path) -> Any:
    """Append an array to a file; return the constant that names it."""
    import onnx

    with path.open("ab") as file:
        # Readers map whole pages, so each array starts at one.
        file.write(bytes(-file.tell() % _PAGE))
        place = {"location": path.name, "offset": file.tell(), "length": array.nbytes}
        file.write(np.ascontiguousarray(array).data)
    constant = onnx.TensorProto(
        name=name,
        dims=array.shape,
        data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
        data_location=onnx.TensorProto.EXTERNAL,
    )
    for key, value in place.items():
        constant.external_data.add(key=key, value=str(value))
    return constant


def export_calibration(chain: Chain, path: str | os.PathLike) -> None:
    """Write a chain as dense layers, `.npz`, or a program, `.onnx`.

    - `.npz`: `kernel_i` [in, out], `bias_i` [out] and `slope_i` of layer i: `y = x @ kernel +
      bias`, where negative values of y are multiplied by the slope.
    - `.onnx`: `embedding`, float32 [n, D], becomes `calibrated_embedding`, float32 [n, d].

    Raises:
      ValueError: the path has another ending, or the couplings have no dense layers.
      FileExistsError: the file exists.
      ImportError: the extra `onnx` is not installed.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise FileExistsError(f"{path}: exists, expected a new file")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new = pathlib.Path(folder, path.name)
        write_export(chain, new, path.suffix)
        os.replace(new, path)


def write_export(chain: Chain, path: pathlib.Path, ending: str) -> None:
    """Write to `path`, in the format of an ending such as `.npz`."""
    if ending == ".npz":
        arrays: dict[str, np.ndarray] = {}
        for i, layer in enumerate(chain.dense_layers()):
            arrays |= {
                f"{name}_{i}": np.asarray(value, np.float32)
                for name, value in layer._asdict().items()
            }
        write_arrays(path, arrays)
    elif ending == ".onnx":
        forward = chain.fixed_forward()
        write_onnx(
            lambda u: {"calibrated_embedding": forward(u)},
            [tf.TensorSpec([None, chain.event_size], tf.float32, "embedding")],
            path,
        )
    else:
        raise ValueError(f"found the ending {ending!r}, expected .npz or .onnx")
