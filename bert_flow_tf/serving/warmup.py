"""Requests that TensorFlow Serving makes of a version before it serves it, so that no client waits for what is set up
at the first call.

The server reads them from `<version>/assets.extra/tf_serving_warmup_requests`, a TFRecord file of `PredictionLog`
records: https://www.tensorflow.org/tfx/serving/saved_model_warmup.
"""

import itertools
import json
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from bert_flow_tf.errors import UserError

WARMUP_FILE = "tf_serving_warmup_requests"
BATCH_SIZES = (1, 32)
# [CLS], [SEP] and what is left of a word or two: the shortest that anybody asks for, nearly.
_SHORT = 4
_TEXT = (
    "our neighbour keeps bees behind the old mill and sells honey at the gate every second weekend while her brother "
    "repairs clocks in a workshop across the road where visitors may watch him for an hour"
)


def write_warmup_requests(version_folder, model_name, signatures):
    """Path of the file of requests, after writing it into a version's folder; the same bytes for the same signatures.

    Every signature gets three: one short row, one as long as the model reads, and 32 of both kinds.

    Args:
      version_folder: the SavedModel's folder, with the `assets.extra/config.json` that says its `max_seq_length`.
      model_name: name that the server knows the model by.
      signatures: `tf.saved_model.load(version_folder).signatures`. Their inputs are sentences, string [n], or tokens,
        int32 [n, t], of which those called `input_mask` are masks.

    Raises:
      UserError: the file exists.
      ValueError: a signature has an input of another kind.
    """
    folder = pathlib.Path(version_folder) / "assets.extra"
    path = folder / WARMUP_FILE
    if path.exists():
        raise UserError(f"{path}: exists, expected a version without warm-up requests")
    longest = json.loads((folder / "config.json").read_text(encoding="utf-8"))["max_seq_length"]
    records = []
    for name in sorted(signatures):
        _, specs = signatures[name].structured_input_signature
        for lengths in _batches(longest):
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = model_name
            request.model_spec.signature_name = name
            for input_name, spec in specs.items():
                tensor = tf.make_tensor_proto(_rows(name, input_name, spec, lengths), dtype=spec.dtype)
                request.inputs[input_name].CopyFrom(tensor)
            # The inputs are a protobuf map, whose order is otherwise not fixed.
            records.append(log.SerializeToString(deterministic=True))
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def read_warmup_requests(path):
    """List of (signature, dict of input name -> array) of the file at `path`; sentences are arrays of bytes.

    Raises:
      UserError: it cannot be read as such a file.
    """
    try:
        logs = [
            prediction_log_pb2.PredictionLog.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))
        ]
    except (tf.errors.OpError, DecodeError) as error:
        raise UserError(f"{path}: cannot be read, expected a TFRecord file of PredictionLog records") from error
    requests = [log.predict_log.request for log in logs]
    return [
        (request.model_spec.signature_name, {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()})
        for request in requests
    ]


def _batches(longest):
    """For every request the lengths of its rows."""
    one, many = BATCH_SIZES
    short = min(_SHORT, longest)
    return [[short] * one, [longest] * one, [short, longest] * (many // 2)]


def _rows(signature, name, spec, lengths):
    """Array that fits `spec`: sentences of so many words (so at least so many word pieces), or rows of so many ids."""
    if spec.dtype == tf.string and spec.shape.rank == 1:
        words = [itertools.islice(itertools.cycle(_TEXT.split()), row, row + k) for row, k in enumerate(lengths)]
        return np.array([" ".join(sentence) for sentence in words], object)
    if spec.dtype == tf.int32 and spec.shape.rank == 2:
        # Of all ids only 0, [PAD]'s, is one in every vocabulary; what is not masked is embedded, whatever it is.
        is_word = np.arange(max(lengths)) < np.array(lengths)[:, np.newaxis]
        return is_word.astype(np.int32) * (name == "input_mask")
    raise ValueError(f"signature {signature}, input {name}: found {spec}, expected string [n] or int32 [n, t]")
