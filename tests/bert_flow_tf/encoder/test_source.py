"""Encoders from TF-Hub; and what somebody else's record names is not run before its fingerprint is the recorded one."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf import BertFlow
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import recorded_encoder, resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.runs.record import read_config
from tests.bert_flow_tf import records
from tests.file_server import served
from tests.refusals import refused, user_error

OTHER = "f" * 64


class WritesWhenLoaded(tf.saved_model.experimental.TrackableResource):
    """A part of a SavedModel whose graph writes a file when TensorFlow loads it."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def _create_resource(self):
        return tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.string)

    def _initialize(self):
        tf.io.write_file(self._path, "loaded")


@pytest.fixture(scope="module")
def trap(small_encoder_dir, tmp_path_factory):
    """Encoder and preprocess model in a folder as TF-Hub has them; each writes its name there when it is loaded."""
    folder = tmp_path_factory.mktemp("trap")
    for part in ("encoder", "preprocess"):
        model = tf.saved_model.load(str(small_encoder_dir / part))
        model.writes_when_loaded = WritesWhenLoaded(str(folder / "loaded" / part))
        tf.saved_model.save(model, str(folder / part))
        # So that a test which finds no trace says something.
        shutil.rmtree(folder / "loaded", ignore_errors=True)
        tf.saved_model.load(str(folder / part))
        assert loaded(folder) == [part]
    return folder


def loaded(trap):
    """Names of the parts of the trap that were loaded since somebody asked."""
    names = sorted(os.listdir(trap / "loaded")) if (trap / "loaded").exists() else []
    shutil.rmtree(trap / "loaded", ignore_errors=True)
    return names


@pytest.fixture(scope="module")
def true_source(trap):
    """`EncoderSource` of the trap."""
    source = resolve_encoder(bert_hub=trap)
    assert loaded(trap) == []
    return source


@pytest.fixture
def run_on(tmp_path):
    """Function (name, source, **changes of its record) that writes a finished run's folder without a flow."""

    def write(name, source, encoder_trained=False, encoder_flags=None, **changes):
        folder = tmp_path / name
        folder.mkdir()
        files = msgspec.structs.replace(source.files, **changes)
        model = records.model(pooling="cls", max_seq_length=8)
        config = records.run_config(encoder_trained=encoder_trained, model=model, encoder_flags=encoder_flags or {})
        write_json(folder / "config.json", msgspec.structs.replace(config, encoder=files))
        (folder / "train_results.json").write_text("{}")
        parts = {"step": tf.Variable(3, dtype=tf.int64)}
        if encoder_trained:
            encoder = SentenceEncoder(source, "cls", trainable=True)
            for variable in encoder.trainable_variables:
                variable.assign(2 * variable)
            parts["encoder"] = encoder.variables_by_name
        tf.train.Checkpoint(**parts).write(str(folder / "model.ckpt-3"))
        return folder

    return write


def test_a_run_runs_no_other_encoder_than_the_recorded_one(trap, true_source, run_on, tmp_path):
    run = run_on("run", true_source, fingerprint=OTHER)
    (tmp_path / "sentences.txt").write_text("The cat sat.\n")
    line = refused("encode", "--model", run, "--input", tmp_path / "sentences.txt", "--out", tmp_path / "u.npy")
    assert line.startswith(f"{trap}: fingerprint: found {true_source.fingerprint}, expected ")
    assert line.endswith(OTHER)
    with user_error(str(trap), true_source.fingerprint, OTHER):
        BertFlow.load(run)
    assert loaded(trap) == []


def test_the_recorded_encoder_is_run_without_its_preprocess_model(trap, true_source, run_on, tmp_path):
    model = BertFlow.load(run_on("run", true_source))
    BertFlow.from_pretrained(model.save(tmp_path / "saved"))
    assert loaded(trap) == ["encoder"]


def test_init_checkpoint_runs_no_other_encoder_than_its_run_has_recorded(
    trap, true_source, run_on, small_encoder_dir, small_hugging_face_dir
):
    run = run_on("run", true_source, fingerprint=OTHER)
    trio = {name: small_hugging_face_dir / file for name, file in (("bert_config_file", "config.json"),)}
    trio["vocab_file"] = small_hugging_face_dir / "vocab.txt"
    for named in ({"bert_hub": small_encoder_dir}, trio):
        with user_error(str(trap), true_source.fingerprint, OTHER):
            resolve_encoder(**named, init_checkpoint=run)
    assert loaded(trap) == []


def test_a_converted_encoder_is_made_again(run_on, small_source, small_encoder_dir, tmp_path):
    trained = run_on("trained", small_source, encoder_trained=True)
    flags = {"bert_hub": str(small_encoder_dir), "init_checkpoint": str(trained)}
    converted = resolve_encoder(**flags, cache_dir=tmp_path / "cache")
    run = run_on("run", converted, encoder_flags=flags)
    shutil.rmtree(tmp_path / "cache")
    assert recorded_encoder(read_config(run), tmp_path / "cache") == converted


def test_a_saved_model_runs_no_other_encoder_than_the_recorded_one(trap, true_source, run_on, tmp_path):
    saved = BertFlow.load(run_on("run", true_source)).save(tmp_path / "saved")
    # As it was written before there was a record of the vocabulary's case in every saved model.
    (saved / "source.json").unlink()
    config = json.loads((saved / "bert_flow.json").read_text())
    config["model"]["encoder"]["fingerprint"] = OTHER
    (saved / "bert_flow.json").write_text(json.dumps(config))
    loaded(trap)
    with user_error(str(saved), true_source.fingerprint, OTHER):
        BertFlow.from_pretrained(saved)
    assert loaded(trap) == []


@pytest.fixture
def hub_server(tiny_encoder_dir, tmp_path):
    """URL of a server that gives an encoder and its preprocess model the way TF-Hub does, as archives."""
    for name in ("encoder", "preprocess"):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        archive = shutil.make_archive(str(tmp_path / name), "gztar", tiny_encoder_dir / name)
        shutil.move(archive, tmp_path / "tiny" / name / "1")
    with served(tmp_path) as url:
        yield f"{url}/tiny"


def test_encoder_and_preprocess_model_load_from_a_server_as_from_tf_hub(hub_server, tiny_source, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "hub"))
    served = resolve_encoder(bert_hub=f"{hub_server}/encoder/1", preprocess_hub=f"{hub_server}/preprocess/1")
    assert served.bert_hub == f"{hub_server}/encoder/1"
    assert served.do_lower_case is True
    sentences = tf.constant(["W1 w2 w3.", "ẁ4"])
    embeddings = []
    for source in (served, tiny_source):
        inputs = Tokenizer.from_source(source)(sentences, 24)
        embeddings.append(SentenceEncoder(source, "avg", trainable=False)(inputs).numpy())
    np.testing.assert_array_equal(embeddings[0], embeddings[1])


def test_what_tf_hub_fetches_is_kept_in_the_users_cache(hub_server, tmp_path):
    resolve = f"""
from bert_flow_tf.encoder.source import resolve_encoder
print(resolve_encoder(bert_hub="{hub_server}/encoder/1", preprocess_hub="{hub_server}/preprocess/1").encoder_dir)
"""

    def fetched_to(**variables):
        unset = ("BERT_FLOW_CACHE", "TFHUB_CACHE_DIR", "XDG_CACHE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")} | variables
        command = [sys.executable, "-c", resolve]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.strip())

    (tmp_path / "temporary").mkdir()
    cache = tmp_path / "home" / ".cache" / "bert_flow_tf" / "tfhub"
    encoder_dir = fetched_to()
    assert encoder_dir.parent == cache
    assert fetched_to() == encoder_dir
    assert fetched_to(TFHUB_CACHE_DIR=str(tmp_path / "hub")).parent == tmp_path / "hub"
    assert not list((tmp_path / "temporary").iterdir())


def test_a_cache_that_cannot_be_written_to_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with user_error("bert_hub=", str(tmp_path / "file")):
        resolve_encoder(bert_hub="http://127.0.0.1:9/1", cache_dir=tmp_path / "file")


def test_a_tf1_checkpoints_folder_is_an_encoder(tiny_trio, tiny_source):
    folder = pathlib.Path(tiny_trio["init_checkpoint"]).parent
    source = resolve_encoder(bert_hub=folder, cache_dir=tiny_trio["cache_dir"])
    assert source.fingerprint == tiny_source.fingerprint
    assert source.bert_hub == str(folder)


def test_a_preprocess_model_beside_a_model_with_a_vocabulary_is_refused(small_hugging_face_dir, small_source, tmp_path):
    with user_error("preprocess_hub: found", "expected none", "has its vocabulary"):
        resolve_encoder(
            bert_hub=small_hugging_face_dir, preprocess_hub=small_source.preprocess_dir, cache_dir=tmp_path / "cache"
        )
