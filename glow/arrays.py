"""Check arrays that were read from a file."""

from collections.abc import Mapping, Sequence

import numpy as np


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
