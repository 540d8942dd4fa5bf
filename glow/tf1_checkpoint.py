"""Convert a flow's variables from and to TF1 checkpoints."""

import re
from collections.abc import Mapping

import numpy as np

from glow.arrays import check_arrays
from glow.config import GlowConfig
from glow.flow import Glow

FLOW_SCOPE = "bert/flow/"
_SLOT_SUFFIXES = ("/adam_m", "/adam_v")

# TF1's tensors are [batch, 1, 1, channels] and its kernels [1, 1, in, out], so these have leading
# axes of size 1.
_LEADING_AXES = {"b": 3, "logs": 3, "W": 2}


def is_flow_name(name: str) -> bool:
    """True for a flow's variable, but not for its optimiser's moments."""
    return name.startswith(FLOW_SCOPE) and not name.endswith(_SLOT_SUFFIXES)


def _tf1_shapes(flow: Glow) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for path, variable in flow.variables_by_path.items():
        axes = 1 if path.endswith("zeros/logs") else _LEADING_AXES.get(path.rpartition("/")[2], 0)
        shapes[path] = (1,) * axes + tuple(variable.shape)
    return shapes


def _reversals(flow: Glow) -> dict[str, np.ndarray]:
    if not flow.config.permutation:
        return {}
    return {
        f"revnet_{level}/revnet_step_{step}/invertible/w": np.eye(flow.event_size // 2**level)[::-1]
        for level in range(flow.config.n_levels)
        for step in range(flow.config.depth)
    }


def assign_tf1_variables(flow: Glow, values: Mapping[str, np.ndarray]) -> None:
    """Set every variable of `flow` from TF1's values.

    Names outside `FLOW_SCOPE` and the optimiser's moments are ignored. The constant matrix
    `invertible/w` of a reversal is optional. An error changes no variable.

    Raises:
      ValueError: a variable is missing, unexpected or not finite, or has another shape, or a stored
        permutation is not the reversal. If a shipped configuration fits, the message names it.
    """
    stored = {
        name.removeprefix(FLOW_SCOPE): np.asarray(value)
        for name, value in values.items()
        if is_flow_name(name)
    }
    shapes = _tf1_shapes(flow)
    reversals = _reversals(flow)
    for path in stored.keys() & reversals.keys():
        if not np.array_equal(stored[path], reversals[path]):
            found = f"{FLOW_SCOPE}{path}: found another matrix"
            raise ValueError(f"{found}, expected the reversal of {len(reversals[path])} channels")
    others = {f"{FLOW_SCOPE}{path}": stored[path] for path in stored.keys() - reversals.keys()}
    expected = {f"{FLOW_SCOPE}{path}": shape for path, shape in shapes.items()}
    try:
        check_arrays(others, expected, "this flow configuration")
    except ValueError as error:
        raise ValueError(f"{error}{_fitting(stored)}") from None
    for path, variable in flow.variables_by_path.items():
        variable.assign(stored[path].reshape(variable.shape))


def _fitting(stored: Mapping[str, np.ndarray]) -> str:
    """Return "; NAME fits" if a shipped config fits, else ""."""
    levels, steps = (
        len(set(re.findall(rf"{name}\d+", " ".join(stored))))
        for name in ("revnet_", "revnet_step_")
    )
    widths = {
        value.shape[-1]
        for path, value in stored.items()
        if path.endswith("additive/nn/conv_block/1_2/W")
    }
    is_learned = any(path.endswith("invertible/P") for path in stored)
    for name in GlowConfig.names():
        config = GlowConfig.load(name)
        if (levels, steps, widths) == (
            config.n_levels,
            config.depth,
            {config.coupling_width},
        ) and not is_learned:
            return f"; {name} fits"
    return ""


def tf1_variables(flow: Glow) -> dict[str, np.ndarray]:
    """Return a flow's arrays and its reversals' matrices by TF1 name."""
    shapes = _tf1_shapes(flow)
    arrays = {
        path: variable.numpy().reshape(shapes[path])
        for path, variable in flow.variables_by_path.items()
    }
    arrays |= {
        path: matrix.astype(flow.dtype.as_numpy_dtype) for path, matrix in _reversals(flow).items()
    }
    return {f"{FLOW_SCOPE}{path}": value for path, value in arrays.items()}
