"""Whether this machine computes an encoder faster in float32 or in bfloat16: measured once, kept in the user's cache.

What a CPU says of its units tells whether it can multiply bfloat16, not how fast: with AVX-512 BF16 products of these
shapes have been measured at 119 GFLOP/s beside 185 in float32, with AMX at more than twice float32's rate.
"""

import contextlib
import functools
import hashlib
import math
import os
import re
import time
from typing import Annotated

import msgspec
import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder.cpu import bfloat16_units, cpu_fields, usable_cpus
from bert_flow_tf.encoder.fused_bert import FusedBert
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, to_json, write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.user_cache import cache_root

# Sentences and their length of the batch that is measured: products of 256 rows run at nearly full rate.
_BATCH, _LENGTH = 8, 32
_REPEATS = 4
# Of /proc/cpuinfo: a virtual CPU's name alone is that of many.
_CPU_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part")
# Environment variables that choose TensorFlow's kernels, or the number of their threads.
_SETTINGS = ("ONEDNN_MAX_CPU_ISA", "TF_ENABLE_ONEDNN_OPTS", "TF_NUM_INTRAOP_THREADS")
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class LayerSeconds(msgspec.Struct, frozen=True):
    """Least seconds of one layer of an encoder, on 256 tokens."""

    float32: _Seconds
    bfloat16: _Seconds

    @property
    def bfloat16_is_faster(self) -> bool:
        return self.bfloat16 < self.float32


class _Entry(msgspec.Struct):
    """A file of the cache: what was measured, and on what."""

    format_version: int
    measured_on: dict[str, str]
    seconds: LayerSeconds


def multiplies_bfloat16(variables: dict[str, tf.Variable]) -> bool:
    """Whether a BERT of these `SentenceEncoder.variables_by_name` is to multiply in bfloat16 here, to be fast.

    On visible GPUs their compute capability says it, 8.0 or more. On a CPU both are measured, some 0.3 s, and kept in
    the cache for this CPU, TensorFlow, number of threads and the encoder's shapes.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        chosen = all(each.get("compute_capability", (0, 0)) >= (8, 0) for each in details)
        logging.info("bfloat16: products in %s, by the GPU's compute capability", _name(chosen))
        return chosen
    seconds = _kept_seconds(variables)
    logging.info(
        "bfloat16: products in %s, the faster on this machine: a layer takes %.2f ms in float32, %.2f ms in bfloat16",
        _name(seconds.bfloat16_is_faster),
        1e3 * seconds.float32,
        1e3 * seconds.bfloat16,
    )
    return seconds.bfloat16_is_faster


def seconds_of_layer(variables: dict[str, tf.Variable]) -> LayerSeconds:
    """The seconds of an encoder's first layer in both, measured now, in turn; each the least of four."""
    rows = {name: variables[f"{name}/embeddings"].shape[0] for name in ("word_embeddings", "position_embedding")}
    shape = [_BATCH, min(_LENGTH, rows["position_embedding"])]
    ids = tf.reshape(tf.range(math.prod(shape)) % rows["word_embeddings"], shape)
    inputs = {"input_word_ids": ids, "input_mask": tf.ones_like(ids), "input_type_ids": tf.zeros_like(ids)}
    functions = {dtype.name: _layer(variables, dtype) for dtype in (tf.float32, tf.bfloat16)}
    # The first call sets things up.
    least = dict.fromkeys(functions, math.inf)
    for i in range(1 + _REPEATS):
        for name, function in functions.items():
            started = time.perf_counter()
            function(inputs).numpy()
            if i:
                least[name] = min(least[name], time.perf_counter() - started)
    return LayerSeconds(**least)


def _layer(variables: dict[str, tf.Variable], dtype: tf.DType) -> tf.types.experimental.PolymorphicFunction:
    """Function of an encoder's inputs that gives the states after its first layer, whose matrices are of `dtype`."""
    chosen = {}
    for name, variable in variables.items():
        layer = re.match(r"transformer/layer_(\d+)/", name)
        if layer is not None and int(layer[1]):
            continue
        is_matrix = layer is not None and name.endswith("/kernel")
        chosen[name] = tf.Variable(tf.cast(variable, dtype), trainable=False) if is_matrix else variable
    fused = FusedBert(chosen, approximate_gelu=True)
    return tf.function(lambda inputs: fused(inputs)["sequence_output"], input_signature=[TOKEN_SPECS], autograph=False)


def _kept_seconds(variables: dict[str, tf.Variable]) -> LayerSeconds:
    """`seconds_of_layer` from the cache; measured, and kept, where it holds none for this machine and encoder.

    Of two processes at once the second waits, so that neither measures beside the other.
    """
    machine = _machine(variables)
    digest = hashlib.sha256(to_json(machine).encode()).hexdigest()
    path = cache_root() / "arithmetic" / f"{digest[:24]}.json"
    read = functools.partial(read_json, path, _Entry, expected="seconds of an encoder's layer")
    # What is wrong with an entry is said below, by the process that replaces it.
    with contextlib.suppress(UserError):
        return read().seconds
    measured = None
    try:
        with locked(path, wait=True):
            if path.exists():
                try:
                    return read().seconds
                except UserError as error:
                    logging.warning("%s; measured again", error)
            measured = seconds_of_layer(variables)
            write_json(path, _Entry(FORMAT_VERSION, machine, measured))
    except UserError as error:
        logging.warning("%s; what is measured of bfloat16 is not kept", error)
    return measured or seconds_of_layer(variables)


def _machine(variables: dict[str, tf.Variable]) -> dict[str, str]:
    """What the seconds depend on."""
    fields = cpu_fields()
    kernels = {name: v.shape for name, v in variables.items() if re.match(r"transformer/layer_0/.*/kernel", name)}
    return {
        **{name: fields[name] for name in _CPU_FIELDS if name in fields},
        "bfloat16 units": " ".join(bfloat16_units()),
        "tensorflow": tf.__version__,
        "threads": str(tf.config.threading.get_intra_op_parallelism_threads() or usable_cpus()),
        **{name: os.environ[name] for name in _SETTINGS if name in os.environ},
        **{name: str(list(shape)) for name, shape in sorted(kernels.items())},
    }


def _name(multiplies_in_bfloat16: bool) -> str:
    return "bfloat16" if multiplies_in_bfloat16 else "float32"
