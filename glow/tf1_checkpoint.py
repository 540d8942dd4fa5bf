"""A flow's variables under the names and shapes of the original's TF1 checkpoints."""

import numpy as np
import tensorflow as tf

# The optimiser's moments, which the original's checkpoints keep beside each variable.
_SLOT_SUFFIXES = ("/adam_m", "/adam_v")

# Leading axes of size 1 that TF1 has and this flow has not: TF1's tensors are [batch, 1, 1, channels], its kernels
# [1, 1, in, out].
_LEADING_AXES = {"b": 3, "logs": 3, "W": 2}


def _tf1_shape(path, variable):
    """The shape that TF1 keeps the variable of that path in."""
    axes = 1 if path.endswith("zeros/logs") else _LEADING_AXES.get(path.rpartition("/")[2], 0)
    return (1,) * axes + tuple(variable.shape)


def _reversals(flow):
    """dict from path to event size of the matrices that TF1 stores for a fixed reversal."""
    if not flow.config.permutation:
        return {}
    return {
        f"revnet_{level}/revnet_step_{step}/invertible/w": flow.event_size // 2**level
        for level in range(flow.config.n_levels)
        for step in range(flow.config.depth)
    }


def assign_tf1_variables(flow, values, prefix="bert/"):
    """Sets every variable of `flow` from TF1's, after checking that names and shapes agree exactly; gives back nothing.

    Names that do not start with `prefix` + "flow/" belong to other parts of the model and are passed over, and so are
    the optimiser's moments. The constant matrix `invertible/w` of a fixed reversal may be absent; if present it must be
    the reversal.

    Args:
      flow: a `glow.flow.Glow`.
      values: dict from TF1 name, such as `bert/flow/revnet_0/revnet_step_0/actnorm/actnorm_center/b`, to array.
      prefix: what stands before "flow/".

    Raises:
      ValueError: a variable is missing, left over, of another shape, or not finite, or a stored permutation is not the
        reversal; names it. Nothing has been assigned then.
    """
    root = f"{prefix}flow/"
    stored = {
        name[len(root) :]: np.asarray(value)
        for name, value in values.items()
        if name.startswith(root) and not name.endswith(_SLOT_SUFFIXES)
    }
    variables = flow.variables_by_path
    reversals = _reversals(flow)
    for path in variables:
        if path not in stored:
            raise ValueError(f"{root}{path}: missing, expected shape {_tf1_shape(path, variables[path])}")
    for path, value in stored.items():
        if path in reversals:
            size = reversals[path]
            if value.shape != (size, size) or not np.array_equal(value, np.eye(size)[::-1]):
                raise ValueError(
                    f"{root}{path}: found a matrix of shape {value.shape}, expected the reversal of {size}"
                )
            continue
        if path not in variables:
            raise ValueError(f"{root}{path}: left over, the flow of this config has no such variable")
        expected = _tf1_shape(path, variables[path])
        if value.shape != expected:
            raise ValueError(f"{root}{path}: found shape {value.shape}, expected {expected}")
        if not np.isfinite(value).all():
            raise ValueError(f"{root}{path}: holds a value that is not finite")
    for path, variable in variables.items():
        variable.assign(stored[path].reshape(variable.shape))


def tf1_variables(flow, prefix="bert/"):
    """dict from TF1 name to array in TF1's shape, fixed reversals included: what `assign_tf1_variables` takes."""
    arrays = {path: v.numpy().reshape(_tf1_shape(path, v)) for path, v in flow.variables_by_path.items()}
    for path, size in _reversals(flow).items():
        arrays[path] = np.eye(size, dtype=flow.dtype.as_numpy_dtype)[::-1].copy()
    return {f"{prefix}flow/{path}": value for path, value in arrays.items()}


def load_tf1_checkpoint(flow, ckpt_prefix, prefix="bert/"):
    """Sets every variable of `flow` from the TF1 checkpoint files `ckpt_prefix`.*; gives back nothing.

    Raises:
      ValueError: no readable checkpoint there, or as `assign_tf1_variables`; names the checkpoint.
    """
    try:
        reader = tf.train.load_checkpoint(ckpt_prefix)
    except (tf.errors.OpError, ValueError) as error:
        raise ValueError(f"{ckpt_prefix}: not a readable checkpoint: {str(error).splitlines()[0]}") from None
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith(f"{prefix}flow/")]
    try:
        values = {name: reader.get_tensor(name) for name in names if not name.endswith(_SLOT_SUFFIXES)}
    except (tf.errors.OpError, IndexError):
        raise ValueError(f"{ckpt_prefix}: its data file does not fit its index, expected a whole one") from None
    try:
        assign_tf1_variables(flow, values, prefix)
    except ValueError as error:
        raise ValueError(f"{ckpt_prefix}: {error}") from None
