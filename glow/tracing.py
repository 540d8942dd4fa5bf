"""Functions that are traced once, in processes that can run them."""

import functools
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context  # The public API cannot say that TensorFlow runs.


class _Process:
    """Remember a fork of a process in which TensorFlow ran."""

    is_forked = False

    @classmethod
    def note_fork(cls) -> None:
        started = context.context_safe()
        cls.is_forked |= started is not None and started._initialized


os.register_at_fork(after_in_child=_Process.note_fork)


def check_process() -> None:
    """Raise `RuntimeError` in a forked child, where TensorFlow would wait forever.

    Its threads are in the parent alone.
    """
    if _Process.is_forked:
        raise RuntimeError(
            "TensorFlow: found a forked child of a process in which it ran, expected a new "
            "process: start workers by spawn, or load the model in the workers only"
        )


def traced_once(function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
    """Return a function of tensors that its first call traces.

    Args:
      specs: a `tf.TensorSpec`, or a dict of them, for each argument.
    """
    # The function's other arguments keep their defaults.
    traced = tf.function(lambda *inputs: function(*inputs), input_signature=specs, autograph=False)
    # If a process makes five models, TensorFlow would warn of frequent tracing, but not of concrete
    # functions. These would ignore `tf.config.run_functions_eagerly`, by which one debugs.
    concrete = functools.cache(traced.get_concrete_function)

    def run(*inputs: Any) -> Any:
        check_process()
        return (traced if tf.config.functions_run_eagerly() else concrete())(*inputs)

    return run
