"""Warm-up requests, which TensorFlow Serving runs before it serves a version.

The server reads them from `<version>/assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog`
records: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
"""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

# Word pieces of a short sentence, [CLS] and [SEP] included.
_SHORT = 4
_TEXT = (
    "our neighbour keeps bees behind the old mill and sells honey at the gate every second weekend while her brother "
    "repairs clocks in a workshop across the road where visitors may watch him for an hour"
)


def write_warmup_requests(
    version_folder: pathlib.Path, model_name: str, signatures: Mapping[str, Any], max_seq_length: int
) -> None:
    """Write three requests for each signature: a short row, a row of `max_seq_length` pieces, and 32 of both kinds.

    The same signatures give the same bytes.

    Args:
      version_folder: the SavedModel, which has a folder `assets.extra`.
      model_name: the server's name of the model.
      signatures: `tf.saved_model.load(version_folder).signatures`, whose inputs are sentences, string [n], or tokens,
        int32 [n, t].
      max_seq_length: word pieces of the longest rows.
    """
    short = min(_SHORT, max_seq_length)
    with tf.io.TFRecordWriter(str(version_folder / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        for name in sorted(signatures):
            _, specs = signatures[name].structured_input_signature
            for lengths in ([short], [max_seq_length], [short, max_seq_length] * 16):
                log = prediction_log_pb2.PredictionLog()
                request = log.predict_log.request
                request.model_spec.name, request.model_spec.signature_name = model_name, name
                for input_name, spec in specs.items():
                    tensor = tf.make_tensor_proto(_rows(input_name, spec.dtype, lengths), dtype=spec.dtype)
                    request.inputs[input_name].CopyFrom(tensor)
                # The inputs are a protobuf map, whose order is otherwise not fixed.
                writer.write(log.SerializeToString(deterministic=True))


def _rows(name: str, dtype: tf.DType, lengths: Sequence[int]) -> np.ndarray:
    if dtype == tf.string:
        words = [itertools.islice(itertools.cycle(_TEXT.split()), row, row + k) for row, k in enumerate(lengths)]
        return np.array([" ".join(sentence) for sentence in words], object)
    # Every vocabulary has the id 0, [PAD]. Ids that are not masked are embedded, whatever they are.
    is_word = np.arange(max(lengths)) < np.array(lengths)[:, np.newaxis]
    return is_word.astype(np.int32) * (name == "input_mask")
