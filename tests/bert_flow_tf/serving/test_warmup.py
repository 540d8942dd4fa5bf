"""The requests that a server warms a version up with: replayed, they ask for what clients will."""

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


@pytest.fixture
def version(tmp_path):
    """A version's folder without requests."""
    (tmp_path / "1" / "assets.extra").mkdir(parents=True)
    return tmp_path / "1"


def test_every_signature_is_asked_for_one_row_and_for_many_and_answers_with_finite_rows(asked, signatures):
    assert asked.keys() == signatures.keys()
    for name, requests in asked.items():
        for inputs, n in zip(requests, [1, 1, 32], strict=True):
            (output,) = signatures[name](**{key: tf.constant(array) for key, array in inputs.items()}).values()
            assert len(output) == n and np.isfinite(output.numpy()).all()


def test_sentences_are_short_and_as_long_as_the_model_reads(asked):
    one, long, many = (inputs["sentences"] for inputs in asked["serving_default"])
    # The second is the model's max_seq_length.
    assert [len(sentence.split()) for sentence in (*one, *long, *many)] == [4, 8] + [4, 8] * 16


def test_token_rows_end_in_masked_padding(asked):
    masks = [inputs["input_mask"] for inputs in asked["tokens"]]
    for mask, lengths in zip(masks, ([4], [8], [4, 8] * 16), strict=True):
        np.testing.assert_array_equal(mask, np.arange(max(lengths)) < np.array(lengths)[:, None])
    assert not any(inputs["input_word_ids"].any() for inputs in asked["tokens"])


def test_bytes_are_the_same_in_any_order_of_the_signatures(sts_version, version, signatures):
    write_warmup_requests(version, "sts", dict(reversed(list(signatures.items()))), 8)
    assert (version / _FILE).read_bytes() == (sts_version / _FILE).read_bytes()
