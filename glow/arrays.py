"""Write arrays to a file, and check those that are read."""

import os
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np


def write_arrays(path: str | os.PathLike, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as `.npz`, which has checksums."""
    # On a full disk, `np.savez` leaves its archive open, whose end then prints a traceback.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def check_arrays(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]], model: str
) -> None:
    """Raise `ValueError` unless the arrays are finite and have these shapes.

    `model` names in the message what has these variables.
    """
    for problem, names in (
        ("missing", shapes.keys() - arrays.keys()),
        ("unexpected", arrays.keys() - shapes.keys()),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(f"variable {min(names)}{more}: {problem}, expected those of {model}")
    for name, shape in shapes.items():
        found = np.shape(arrays[name])
        if found != tuple(shape):
            raise ValueError(f"variable {name}: found shape {list(found)}, expected {list(shape)}")
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"variable {name}: found NaN or infinity, expected finite numbers")
