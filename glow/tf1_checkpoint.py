"""A flow's variables under the names and shapes of the original's TF1 checkpoints."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from glow.flow import Glow

# What the names of a flow's variables begin with.
FLOW_SCOPE = "bert/flow/"
# The optimiser's moments, which the original's checkpoints keep beside each variable.
_SLOT_SUFFIXES = ("/adam_m", "/adam_v")

# Leading axes of size 1 that TF1 has and this flow has not: TF1's tensors are [batch, 1, 1, channels], its kernels
# [1, 1, in, out].
_LEADING_AXES = {"b": 3, "logs": 3, "W": 2}


def is_flow_name(name: str) -> bool:
    """Whether a TF1 name is that of a flow's variable, and not of its moments in the optimiser."""
    return name.startswith(FLOW_SCOPE) and not name.endswith(_SLOT_SUFFIXES)


def _tf1_shape(path: str, variable: tf.Variable) -> tuple[int, ...]:
    axes = 1 if path.endswith("zeros/logs") else _LEADING_AXES.get(path.rpartition("/")[2], 0)
    return (1,) * axes + tuple(variable.shape)


def _reversals(flow: Glow) -> dict[str, int]:
    """dict from path to event size of the matrices that TF1 stores for a fixed reversal."""
    if not flow.config.permutation:
        return {}
    return {
        f"revnet_{level}/revnet_step_{step}/invertible/w": flow.event_size // 2**level
        for level in range(flow.config.n_levels)
        for step in range(flow.config.depth)
    }


def assign_tf1_variables(flow: Glow, values: Mapping[str, np.ndarray]) -> None:
    """Sets every variable of `flow` from TF1's, after checking that names and shapes agree exactly.

    Names that do not start with `FLOW_SCOPE` belong to other parts of the model and are ignored, and so are the
    optimiser's moments. The constant matrix `invertible/w` of a fixed reversal may be absent; if present it must be
    the reversal.

    Raises:
      ValueError: a variable is missing, left over, of another shape, or not finite, or a stored permutation is not the
        reversal; names it. Nothing has been assigned then.
    """
    stored = {name.removeprefix(FLOW_SCOPE): np.asarray(value) for name, value in values.items() if is_flow_name(name)}
    variables = flow.variables_by_path
    reversals = _reversals(flow)
    for path in variables:
        if path not in stored:
            raise ValueError(f"{FLOW_SCOPE}{path}: missing, expected shape {_tf1_shape(path, variables[path])}")
    for path, value in stored.items():
        if path in reversals:
            size = reversals[path]
            if value.shape != (size, size) or not np.array_equal(value, np.eye(size)[::-1]):
                raise ValueError(
                    f"{FLOW_SCOPE}{path}: found a matrix of shape {value.shape}, expected the reversal of {size}"
                )
            continue
        if path not in variables:
            raise ValueError(f"{FLOW_SCOPE}{path}: unexpected, the flow of this config has no such variable")
        expected = _tf1_shape(path, variables[path])
        if value.shape != expected:
            raise ValueError(f"{FLOW_SCOPE}{path}: found shape {value.shape}, expected {expected}")
        if not np.isfinite(value).all():
            raise ValueError(f"{FLOW_SCOPE}{path}: holds a value that is not finite")
    for path, variable in variables.items():
        variable.assign(stored[path].reshape(variable.shape))


def tf1_variables(flow: Glow) -> dict[str, np.ndarray]:
    """dict from TF1 name to array in TF1's shape, fixed reversals included: what `assign_tf1_variables` takes."""
    arrays = {path: v.numpy().reshape(_tf1_shape(path, v)) for path, v in flow.variables_by_path.items()}
    for path, size in _reversals(flow).items():
        arrays[path] = np.eye(size, dtype=flow.dtype.as_numpy_dtype)[::-1].copy()
    return {f"{FLOW_SCOPE}{path}": value for path, value in arrays.items()}
