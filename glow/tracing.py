"""Functions of tensors that are traced once."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


def traced_once(function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
    """Return a function of tensors that its first call traces.

    Args:
      specs: a `tf.TensorSpec`, or a dict of them, for each argument.
    """
    # The function's other arguments keep their defaults.
    traced = tf.function(lambda *inputs: function(*inputs), input_signature=specs, autograph=False)
    # If a process makes five models, TensorFlow would warn of frequent tracing, but not of concrete
    # functions.
    concrete = functools.cache(traced.get_concrete_function)
    return lambda *inputs: concrete()(*inputs)
