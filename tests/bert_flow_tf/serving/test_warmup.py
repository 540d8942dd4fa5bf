"""Warm-up requests ask for what clients will."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from bert_flow_tf.serving.served_model import write_warmup_requests

_FILE = "assets.extra/tf_serving_warmup_requests"


@pytest.fixture(scope="module")
def signatures(sts_version):
    return tf.saved_model.load(str(sts_version)).signatures


@pytest.fixture(scope="module")
def asked(sts_version):
    """dict of signature -> list of dict of input name -> array."""
    found = {}
    for record in tf.data.TFRecordDataset(str(sts_version / _FILE)):
        request = PredictionLog.FromString(record.numpy()).predict_log.request
        assert request.model_spec.name == "sts"
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        found.setdefault(request.model_spec.signature_name, []).append(inputs)
    return found


def test_every_signature_is_asked_for_one_row_and_for_many(asked, signatures):
    assert asked.keys() == signatures.keys()
    for name, requests in asked.items():
        for inputs, n in zip(requests, [1, 1, 32], strict=True):
            (output,) = signatures[name](**{key: tf.constant(array) for key, array in inputs.items()}).values()
            assert len(output) == n and np.isfinite(output.numpy()).all()


def test_rows_are_short_and_as_long_as_the_model_reads(asked):
    # The model's max_seq_length is 8.
    lengths = ([4], [8], [4, 8] * 16)
    assert [[len(text.split()) for text in one["sentences"]] for one in asked["serving_default"]] == list(lengths)
    for inputs, sizes in zip(asked["tokens"], lengths, strict=True):
        np.testing.assert_array_equal(inputs["input_mask"], np.arange(max(sizes)) < np.array(sizes)[:, None])
        assert not inputs["input_word_ids"].any()


def test_bytes_are_the_same_in_any_order_of_the_signatures(sts_version, signatures, tmp_path):
    (tmp_path / "assets.extra").mkdir()
    write_warmup_requests(tmp_path, "sts", dict(reversed(list(signatures.items()))), 8)
    assert (tmp_path / _FILE).read_bytes() == (sts_version / _FILE).read_bytes()
