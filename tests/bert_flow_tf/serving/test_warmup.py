"""The requests that a server warms a version up with: replayed, they ask for what clients will."""

import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.warmup import read_warmup_requests, write_warmup_requests


@pytest.fixture(scope="module")
def exported(sts_version, tmp_path_factory):
    """Folder of a version without warm-up requests."""
    path = pathlib.Path(shutil.copytree(sts_version, tmp_path_factory.mktemp("warmup") / "sts" / "1"))
    (path / "assets.extra" / "tf_serving_warmup_requests").unlink()
    return path


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported)).signatures


@pytest.fixture
def version(exported, tmp_path):
    """A folder with as much of a version as the requests are made from."""
    shutil.copytree(exported / "assets.extra", tmp_path / "1" / "assets.extra")
    return tmp_path / "1"


@pytest.fixture
def requests(version, signatures):
    return read_warmup_requests(write_warmup_requests(version, "sts", signatures))


def rows(inputs):
    (n,) = {len(array) for array in inputs.values()}
    return n


def test_file_is_where_the_server_looks(version, signatures):
    path = write_warmup_requests(version, "sts", signatures)
    assert path == version / "assets.extra" / "tf_serving_warmup_requests"
    assert path.is_file()


def test_every_signature_is_asked_for_one_row_and_for_many(requests, signatures):
    asked = {name: [rows(inputs) for signature, inputs in requests if signature == name] for name in signatures}
    assert asked == {name: [1, 1, 32] for name in signatures}


def test_replayed_requests_are_answered_with_finite_rows(requests, signatures):
    for name, inputs in requests:
        outputs = signatures[name](**{key: tf.constant(array) for key, array in inputs.items()})
        for output, spec in ((outputs[key], spec) for key, spec in signatures[name].structured_outputs.items()):
            assert output.shape.as_list() == [rows(inputs), *spec.shape.as_list()[1:]]
            assert np.isfinite(output.numpy()).all()


def test_sentences_are_short_and_as_long_as_the_model_reads(requests):
    one, long, many = (inputs["sentences"] for signature, inputs in requests if signature == "serving_default")
    assert len(one[0].split()) == 4
    # The model's max_seq_length.
    assert len(long[0].split()) == 8
    assert {len(sentence.split()) for sentence in many} == {4, 8}
    assert len(set(many)) == 32


def test_token_rows_end_in_masked_padding(version):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, n) for n in ("input_word_ids", "input_mask")])
    def tokens(input_word_ids, input_mask):
        return {"embedding": tf.cast(input_word_ids + input_mask, tf.float32)}

    module = tf.Module()
    module.tokens = tokens
    tf.saved_model.save(module, str(version / "model"), signatures={"tokens": tokens})
    loaded = tf.saved_model.load(str(version / "model"))
    requests = read_warmup_requests(write_warmup_requests(version, "sts", loaded.signatures))
    masks = [inputs["input_mask"] for _, inputs in requests]
    assert [mask.shape for mask in masks] == [(1, 4), (1, 8), (32, 8)]
    assert [mask.dtype for mask in masks] == [np.int32] * 3
    assert masks[0].all() and masks[1].all()
    np.testing.assert_array_equal(masks[2].sum(axis=1), [4, 8] * 16)
    assert not np.diff(masks[2], axis=1).max() > 0
    assert not any(inputs["input_word_ids"].any() for _, inputs in requests)


def test_records_name_the_model(version, signatures):
    path = write_warmup_requests(version, "sts", signatures)
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    assert {PredictionLog.FromString(record).predict_log.request.model_spec.name for record in records} == {"sts"}
    # The server refuses a version with more.
    assert len(records) <= 1000


def test_bytes_are_the_same_each_time(version, exported, signatures, tmp_path):
    shutil.copytree(exported / "assets.extra", tmp_path / "2" / "assets.extra")
    backwards = dict(reversed(list(signatures.items())))
    first, second = (
        write_warmup_requests(folder, "sts", found).read_bytes()
        for folder, found in [(version, signatures), (tmp_path / "2", backwards)]
    )
    assert first == second


def test_requests_that_are_there_are_not_overwritten(version, signatures):
    write_warmup_requests(version, "sts", signatures)
    with pytest.raises(UserError, match="exists, expected a version without warm-up requests"):
        write_warmup_requests(version, "sts", signatures)


def test_input_of_another_kind_is_named(version):
    class Signature:
        structured_input_signature = ((), {"pixels": tf.TensorSpec([None, 3], tf.float32)})

    with pytest.raises(ValueError, match="signature image, input pixels: found TensorSpec"):
        write_warmup_requests(version, "sts", {"image": Signature})
    assert [path.name for path in (version / "assets.extra").iterdir()] == ["config.json"]


@pytest.mark.parametrize("content", [b"not records at all", None])
def test_file_that_holds_no_records_is_named(tmp_path, content):
    if content:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match="file: cannot be read, expected a TFRecord file"):
        read_warmup_requests(tmp_path / "file")


def test_record_that_is_no_request_is_named(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        writer.write(b"\xff\xff")
    with pytest.raises(UserError, match="file: cannot be read, expected a TFRecord file of PredictionLog"):
        read_warmup_requests(tmp_path / "file")
