"""The encoder layer, and the ways to name an encoder."""

import dataclasses
import functools
import json
import shutil

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import source as encoder_source
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import write_json
from tests.bert_flow_tf import records


@pytest.fixture(scope="module")
def golden(golden_dir):
    return np.load(golden_dir / "pooling.npz")


def inputs_of(golden):
    names = {"input_word_ids": "input_ids", "input_mask": "input_mask", "input_type_ids": "segment_ids"}
    return {name: tf.constant(golden[key]) for name, key in names.items()}


@pytest.fixture(scope="module")
def small_inputs(small_source):
    return Tokenizer.from_source(small_source)(tf.constant(["The cats sat.", "cat"]), 10)


def test_attributes_describe_the_encoder(tiny_source):
    encoder = SentenceEncoder(tiny_source, "paper-concat-last-2", trainable=False)
    assert (encoder.hidden_size, encoder.num_layers, encoder.embedding_size) == (32, 3, 64)
    assert (encoder.max_seq_length, encoder.num_types) == (24, 2)


def test_gradients_reach_every_variable_and_those_of_word_embeddings_are_slices(tiny_source, golden):
    encoder = SentenceEncoder(tiny_source, "cls", trainable=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(inputs_of(golden), training=True) ** 2)
    gradients = tape.gradient(loss, encoder.variables_by_name)
    assert len(encoder.trainable_variables) == len(gradients) == 55
    assert all(gradient is not None for gradient in gradients.values())
    words = gradients["word_embeddings/embeddings"]
    # One slice per token, as in TF1: clipping by the global norm depends on it.
    assert isinstance(words, tf.IndexedSlices)
    assert words.values.shape[0] == golden["input_mask"].sum()
    assert sum(isinstance(gradient, tf.IndexedSlices) for gradient in gradients.values()) == 1


@pytest.mark.parametrize(
    ("pooling", "unread"), [("cls", []), ("avg", ["pooler"]), ("avg-last-last-2", ["pooler", "layer_2"])]
)
def test_pooled_variables_are_those_that_an_embedding_depends_on(tiny_source, golden, pooling, unread):
    encoder = SentenceEncoder(tiny_source, pooling, trainable=True)
    pooled = {id(variable) for variable in encoder.pooled_variables}
    left = [variable for variable in encoder.trainable_variables if id(variable) not in pooled]
    sizes = {"pooler": 2, "layer_2": 16}
    assert len(left) == sum(sizes[part] for part in unread)
    assert all(any(part in variable.name for part in unread) for variable in left)
    before = encoder(inputs_of(golden)).numpy()
    for variable in left:
        variable.assign(variable + 1.0)
    np.testing.assert_array_equal(encoder(inputs_of(golden)), before)


def test_frozen_encoder_has_no_trainable_variables_but_drops_out_in_training(small_source, small_inputs):
    encoder = SentenceEncoder(small_source, "avg", trainable=False)
    assert encoder.trainable_variables == []
    assert np.abs(encoder(small_inputs, training=True) - encoder(small_inputs)).max() > 0.01


def test_without_numbers_dropout_is_random(small_source, small_inputs):
    encoder = SentenceEncoder(small_source, "avg", trainable=True)
    first, second = (encoder(small_inputs, training=True) for _ in range(2))
    assert np.abs(first - second).max() > 1e-2


def test_an_encoder_that_is_no_bert_trains_with_the_dropout_of_its_saved_model(small_source, small_inputs, monkeypatch):
    monkeypatch.setattr("bert_flow_tf.encoder.layer.bert_of", lambda *arguments: None)
    for trainable in (False, True):
        encoder = SentenceEncoder(small_source, "avg", trainable=trainable)
        assert not encoder.numbers_occurrences
        assert np.abs(encoder(small_inputs, training=True) - encoder(small_inputs)).max() > 0.01


def test_with_numbers_dropout_is_that_of_seed_and_number_alone(small_source, small_inputs):
    encoder = SentenceEncoder(small_source, "avg", trainable=True)
    assert encoder.numbers_occurrences
    encoder.dropout_seed = 5

    def embeddings(numbers, rows=(0, 1)):
        inputs = {name: tf.gather(value, rows) for name, value in small_inputs.items()}
        return encoder(inputs | {"occurrence": tf.constant(numbers, tf.int64)}, training=True).numpy()

    first = embeddings([0, 1])
    np.testing.assert_array_equal(embeddings([0, 1]), first)
    np.testing.assert_allclose(embeddings([1, 0], rows=(1, 0)), first[::-1], atol=2e-6)
    assert np.abs(embeddings([2, 3]) - first).max() > 1e-2
    # Without numbers the embeddings are those without dropout, whatever the seed.
    inputs = small_inputs | {"occurrence": tf.constant([0, 1], tf.int64)}
    np.testing.assert_array_equal(encoder(inputs), encoder(small_inputs))
    encoder.dropout_seed = 6
    assert np.abs(embeddings([0, 1]) - first).max() > 1e-2


def test_replicas_drop_the_same_of_a_sentence_wherever_it_is(small_source, small_inputs):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        encoder = SentenceEncoder(small_source, "avg", trainable=True)
    encoder.dropout_seed = 5
    inputs = small_inputs | {"occurrence": tf.constant([3, 4], tf.int64)}
    expected = encoder(inputs, training=True)

    @tf.function
    def step():
        def one():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return encoder({name: value[replica : replica + 1] for name, value in inputs.items()}, training=True)

        return strategy.run(one)

    found = tf.concat(strategy.experimental_local_results(step()), axis=0)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_fingerprint_of_an_encoder_never_changes(tiny_source):
    # What runs and saved models have recorded of their encoders.
    assert tiny_source.fingerprint == "48bca5c99dbb3900c7319c330022f7dc4c81b16585a4cbacdc7139645e51ad4d"


def test_fingerprint_is_that_of_the_contents_wherever_they_are(small_encoder_dir, small_source, tmp_path):
    shutil.copytree(small_encoder_dir, tmp_path / "copy")
    assert resolve_encoder(bert_hub=tmp_path / "copy").fingerprint == small_source.fingerprint
    vocab = (tmp_path / "copy" / "preprocess" / "assets" / "vocab.txt").read_text().replace("sat", "stood")
    (tmp_path / "copy" / "preprocess" / "assets" / "vocab.txt").write_text(vocab)
    assert resolve_encoder(bert_hub=tmp_path / "copy").fingerprint != small_source.fingerprint


def test_a_training_checkpoint_of_the_same_encoder_is_not_converted_again(
    tiny_trio, tiny_source, write_tf1_checkpoint, tmp_path, monkeypatch
):
    reader = tf.train.load_checkpoint(tiny_trio["init_checkpoint"])
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    beside = {"bert/flow/revnet_0/b": np.zeros(3, np.float32), "global_step": np.int64(7)}
    write_tf1_checkpoint(tmp_path / "model.ckpt-7", arrays | beside)
    flags = tiny_trio | {"init_checkpoint": str(tmp_path / "model.ckpt-7")}
    assert resolve_encoder(**flags) == tiny_source
    kernel = "bert/pooler/dense/kernel"
    write_tf1_checkpoint(tmp_path / "model.ckpt-7", arrays | beside | {kernel: 2 * arrays[kernel]})
    monkeypatch.setattr(encoder_source, "write_encoder_folder", lambda *args: pytest.fail("converts"))
    assert resolve_encoder(**tiny_trio) == tiny_source
    with pytest.raises(pytest.fail.Exception, match="converts"):
        resolve_encoder(**flags)


def test_case_of_a_bare_preprocess_model_is_seen_from_what_it_does(small_encoder_dir, tiny_encoder_dir, tmp_path):
    for folder, lower in ((small_encoder_dir, False), (tiny_encoder_dir, True)):
        bare = tmp_path / str(lower)
        for part in ("encoder", "preprocess"):
            shutil.copytree(folder / part, bare / part)
        assert resolve_encoder(bert_hub=bare / "encoder").do_lower_case is lower


def test_short_names_stand_for_tf_hubs_encoders(monkeypatch):
    def unreachable(handle):
        raise OSError(f"no network for {handle}")

    monkeypatch.setattr("tensorflow_hub.resolve", unreachable)
    for name, shape in (("base", "L-12_H-768_A-12"), ("large", "L-24_H-1024_A-16")):
        handle = f"https://tfhub.dev/tensorflow/bert_en_uncased_{shape}/4"
        with pytest.raises(UserError, match=f"bert_hub={handle}: cannot be read as a SavedModel"):
            resolve_encoder(bert_hub=name)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, r"^bert_hub: missing"),
        ({"bert_hub": "demo", "bert_config_file": "x"}, r"bert_hub: found bert_config_file as well"),
        ({"bert_config_file": "a", "vocab_file": "b"}, r"^init_checkpoint: missing"),
        ({"bert_config_file": "a", "vocab_file": "b", "init_checkpoint": "/nowhere/c"}, r"there is no c.index"),
        (
            {"bert_hub": "/nowhere/bert"},
            r"^bert_hub=/nowhere/bert: no such folder, expected base, large, demo, a folder",
        ),
        ({"bert_hub": "small", "preprocess_hub": "http://127.0.0.1:9/1"}, r"^preprocess_hub=http://127.0.0.1:9/1: can"),
        ({"bert_hub": "small/encoder/variables"}, r"no saved_model.pb"),
        ({"bert_hub": "alone"}, r"^preprocess_hub: missing"),
        ({"bert_hub": "tiny", "do_lower_case": False}, r"^do_lower_case: found False"),
        ({"bert_hub": "small", "do_lower_case": True}, r"^do_lower_case: found True"),
        # A checkpoint of TF1 gives an encoder by handle no weights.
        (
            {"bert_hub": "small", "init_checkpoint": "tf1"},
            r"no checkpoint of a run, expected",
        ),
    ],
)
def test_flags_that_name_no_encoder_are_refused(
    small_encoder_dir, tiny_encoder_dir, tiny_trio, tmp_path, monkeypatch, flags, message
):
    monkeypatch.chdir(tmp_path)
    for name, target in (("small", small_encoder_dir), ("tiny", tiny_encoder_dir)):
        (tmp_path / name).symlink_to(target)
    shutil.copytree(small_encoder_dir / "encoder", tmp_path / "alone")
    if flags.get("init_checkpoint") == "tf1":
        flags = flags | {"init_checkpoint": tiny_trio["init_checkpoint"]}
    with pytest.raises(UserError, match=message):
        resolve_encoder(**flags)


class EncoderWithoutLayers(tf.Module):
    @tf.function(input_signature=[TOKEN_SPECS])
    def __call__(self, inputs):
        states = tf.cast(inputs["input_word_ids"], tf.float32)[:, :, tf.newaxis]
        return {"sequence_output": states, "pooled_output": states[:, 0]}


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, inputs):
        return 2.0 * inputs


@pytest.mark.parametrize(
    ("module", "message"),
    [(EncoderWithoutLayers, r"version 3 or later.*: 'encoder_outputs'"), (Doubling, r"which takes input_word_ids, ")],
)
def test_saved_model_that_is_no_encoder_with_layers_is_refused(small_source, tmp_path, module, message):
    tf.saved_model.save(module(), str(tmp_path))
    with pytest.raises(UserError, match=message):
        SentenceEncoder(dataclasses.replace(small_source, encoder_dir=tmp_path), "avg", trainable=False)


def test_outputs_of_half_precision_are_run_as_the_saved_model_has_them(tiny_source, golden, tmp_path):
    bert = tf.saved_model.load(str(tiny_source.encoder_dir))
    half = tf.train.Checkpoint(bert=bert, variables=bert.variables, trainable_variables=bert.trainable_variables)

    def call(inputs, training):
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.bfloat16), bert(inputs, training=training))

    half.__call__ = tf.function(call, autograph=False)
    for training in (False, True):
        half.__call__.get_concrete_function(TOKEN_SPECS, training)
    tf.saved_model.save(half, str(tmp_path))
    inputs = inputs_of(golden)
    inputs["occurrence"] = tf.range(len(golden["input_ids"]), dtype=tf.int64)
    expected = SentenceEncoder(tiny_source, "avg", trainable=False)(inputs)
    encoder = SentenceEncoder(dataclasses.replace(tiny_source, encoder_dir=tmp_path), "avg", trainable=False)
    for embeddings in (encoder(inputs), encoder(inputs, training=True)):
        assert embeddings.dtype == tf.float32
        np.testing.assert_allclose(embeddings, expected, atol=0.02)


def test_vocabulary_larger_than_the_embeddings_is_refused(small_source, tiny_source):
    mixed = dataclasses.replace(small_source, preprocess_dir=tiny_source.preprocess_dir)
    with pytest.raises(UserError, match=r"64 word pieces, the encoder .* has 11 word embeddings"):
        SentenceEncoder(mixed, "avg", trainable=False)


@pytest.fixture
def run_dir(small_source, tmp_path):
    """Function (encoder_trained) that writes a run folder; its checkpoint holds twice the small encoder's weights."""

    def write(encoder_trained):
        encoder = SentenceEncoder(small_source, "cls", trainable=True)
        for variable in encoder.trainable_variables:
            variable.assign(2 * variable)
        write_json(tmp_path / "config.json", records.run_config(small_source, encoder_trained=encoder_trained))
        contents = {"encoder": encoder.variables_by_name} if encoder_trained else {"step": tf.Variable(3)}
        tf.train.Checkpoint(**contents).write(str(tmp_path / "model.ckpt-3"))
        return tmp_path, encoder

    return write


def test_trio_takes_the_encoder_of_a_run_that_trained_it(run_dir, small_source, small_inputs, small_hugging_face_dir):
    folder, trained = run_dir(True)
    resolve = functools.partial(
        resolve_encoder,
        bert_config_file=small_hugging_face_dir / "config.json",
        init_checkpoint=folder / "model.ckpt-3",
        cache_dir=folder / "cache",
    )
    source = resolve(vocab_file=small_hugging_face_dir / "vocab.txt")
    assert source.fingerprint != small_source.fingerprint
    embeddings = SentenceEncoder(source, "cls", trainable=False)(small_inputs)
    np.testing.assert_allclose(embeddings, trained(small_inputs), atol=1e-4)


def test_trio_takes_the_encoder_that_a_run_used_when_it_stayed_frozen(run_dir, small_source, small_hugging_face_dir):
    folder, _ = run_dir(False)
    source = resolve_encoder(
        bert_config_file=small_hugging_face_dir / "config.json",
        vocab_file=small_hugging_face_dir / "vocab.txt",
        init_checkpoint=folder / "model.ckpt-3",
    )
    assert source == small_source


def test_hub_takes_the_encoder_that_a_run_used_when_an_earlier_run_had_trained_it(
    run_dir, small_source, small_encoder_dir, tmp_path
):
    folder, _ = run_dir(True)
    handles = {"bert_hub": small_encoder_dir, "cache_dir": tmp_path / "cache"}
    trained = resolve_encoder(**handles, init_checkpoint=folder / "model.ckpt-3")
    frozen = tmp_path / "frozen"
    frozen.mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"encoder_trained": False}
    (frozen / "config.json").write_text(json.dumps(config | {"encoder": msgspec.to_builtins(trained.files)}))
    tf.train.Checkpoint(step=tf.Variable(3)).write(str(frozen / "model.ckpt-3"))
    assert resolve_encoder(**handles, init_checkpoint=frozen / "model.ckpt-3") == trained
    stranger = msgspec.to_builtins(trained.files) | {"fingerprint": "f" * 64}
    (frozen / "config.json").write_text(json.dumps(config | {"encoder": stranger}))
    with pytest.raises(UserError, match="fingerprint: found"):
        resolve_encoder(**handles, init_checkpoint=frozen / "model.ckpt-3")
