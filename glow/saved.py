"""Write a calibration, load it again, and export it for other programs."""

import json
import os
import pathlib
import tempfile
import zipfile

import numpy as np
import tensorflow as tf

from glow.calibration import AffineMap, Calibration
from glow.config import GlowConfig
from glow.flow import Glow

CONFIG_FILE, ARRAYS_FILE = "calibration.json", "calibration.npz"


def write_calibration(folder: str | os.PathLike, calibration: Calibration) -> None:
    """Write `calibration.json` and the variables, `calibration.npz`, into a folder."""
    config = getattr(calibration, "config", None)
    values = {
        "event_size": calibration.event_size,
        "config": None if config is None else config.to_dict(),
    }
    pathlib.Path(folder, CONFIG_FILE).write_text(
        f"{json.dumps(values, indent=2)}\n", encoding="utf-8"
    )
    arrays = {name: variable.numpy() for name, variable in calibration.variables_by_path.items()}
    np.savez(pathlib.Path(folder, ARRAYS_FILE), **arrays)


def read_calibration(folder: str | os.PathLike) -> Calibration:
    """Return the calibration of a folder; raise `ValueError` for other files."""
    path = pathlib.Path(folder, CONFIG_FILE)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        config, size = values["config"], int(values["event_size"])
        calibration: Calibration = (
            AffineMap(size) if config is None else Glow(GlowConfig(**config), size, seed=0)
        )
        path = path.with_name(ARRAYS_FILE)
        with np.load(path) as arrays:
            for name, variable in calibration.variables_by_path.items():
                if (
                    arrays[name].shape != tuple(variable.shape)
                    or not np.isfinite(arrays[name]).all()
                ):
                    raise ValueError(
                        f"found other values for {name}, expected finite ones of shape "
                        f"{variable.shape}"
                    )
                variable.assign(arrays[name])
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read as a calibration: {error}") from error
    return calibration


def export_calibration(calibration: Calibration, path: str | os.PathLike) -> None:
    """Write a calibration as dense layers, `.npz`, or a program, `.onnx`.

    - `.npz`: `kernel_i` [in, out], `bias_i` [out] and `slope_i` of layer i: `y = x @ kernel +
      bias`, where negative values of y are multiplied by the slope.
    - `.onnx`: `embedding`, float32 [n, D], becomes `calibrated_embedding`, float32 [n, D].

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
        write_export(calibration, new, path.suffix)
        os.replace(new, path)


def write_export(calibration: Calibration, path: pathlib.Path, ending: str) -> None:
    """Write to `path`, in the format of an ending such as `.npz`."""
    if ending == ".npz":
        arrays: dict[str, np.ndarray] = {}
        for i, layer in enumerate(calibration.dense_layers()):
            arrays |= {
                f"{name}_{i}": np.asarray(value, np.float32)
                for name, value in layer._asdict().items()
            }
        with path.open("wb") as file:
            np.savez(file, **arrays)
    elif ending == ".onnx":
        import tf2onnx

        forward = calibration.folded() or calibration.forward
        tf2onnx.convert.from_function(
            tf.function(lambda u: {"calibrated_embedding": forward(u)}, autograph=False),
            input_signature=[
                tf.TensorSpec([None, calibration.event_size], tf.float32, "embedding")
            ],
            opset=18,
            output_path=str(path),
        )
    else:
        raise ValueError(f"found the ending {ending!r}, expected .npz or .onnx")
