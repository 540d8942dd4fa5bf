"""Requests that TensorFlow Serving makes of a version before it serves it, so that no client waits for what is set up
at the first call.

The server reads them from `<version>/assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog`
records: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
"""

import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

WARMUP_FILE = "tf_serving_warmup_requests"
# [CLS], [SEP] and a word or two: about the shortest that clients send.
_SHORT = 4
_TEXT = (
    "our neighbour keeps bees behind the old mill and sells honey at the gate every second weekend while her brother "
    "repairs clocks in a workshop across the road where visitors may watch him for an hour"
)


def write_warmup_requests(
    version_folder: str | os.PathLike, model_name: str, signatures: Mapping[str, Any], max_seq_length: int
) -> None:
    """Writes the file of requests into a version's `assets.extra`; the same bytes for the same signatures.

    Every signature gets three: one short row, one of `max_seq_length` word pieces, and 32 of both kinds. `signatures`
    are `tf.saved_model.load(version_folder).signatures`, whose inputs are sentences, string [n], or tokens, int32
    [n, t]; the server knows the model as `model_name`.
    """
    records = []
    short = min(_SHORT, max_seq_length)
    for name in sorted(signatures):
        _, specs = signatures[name].structured_input_signature
        for lengths in ([short], [max_seq_length], [short, max_seq_length] * 16):
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = model_name
            request.model_spec.signature_name = name
            for input_name, spec in specs.items():
                tensor = tf.make_tensor_proto(_rows(input_name, spec.dtype, lengths), dtype=spec.dtype)
                request.inputs[input_name].CopyFrom(tensor)
            # The inputs are a protobuf map, whose order is otherwise not fixed.
            records.append(log.SerializeToString(deterministic=True))
    with tf.io.TFRecordWriter(str(pathlib.Path(version_folder) / "assets.extra" / WARMUP_FILE)) as writer:
        for record in records:
            writer.write(record)


def _rows(name: str, dtype: tf.DType, lengths: Sequence[int]) -> np.ndarray:
    """An input: sentences of so many words, so at least so many word pieces; or rows of so many ids."""
    if dtype == tf.string:
        words = [itertools.islice(itertools.cycle(_TEXT.split()), row, row + k) for row, k in enumerate(lengths)]
        return np.array([" ".join(sentence) for sentence in words], object)
    # Of all ids only 0, [PAD]'s, is one in every vocabulary; what is not masked is embedded, whatever it is.
    is_word = np.arange(max(lengths)) < np.array(lengths)[:, np.newaxis]
    return is_word.astype(np.int32) * (name == "input_mask")
