"""Python's and NumPy's numbers; booleans are none."""

import numbers
from typing import Any, TypeGuard

import numpy as np


def is_number(value: Any) -> TypeGuard[float]:
    """True for a whole or real number of Python or NumPy."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole_number(value: Any) -> TypeGuard[int]:
    """True for an integer of Python or NumPy."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def plain_number(value: Any) -> Any:
    """Return NumPy's number as Python's, another value as it is."""
    return value.item() if isinstance(value, np.number) else value
