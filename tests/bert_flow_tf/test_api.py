"""BertFlow gives what the original's command line computes, and learns a flow from a list of sentences."""

import dataclasses
import json
import shutil

import fsspec
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.stream import SentenceBatcher
from bert_flow_tf.errors import UserError
from bert_flow_tf.files import sentence_files
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.model.build import build_model, checkpoint_of
from glow.config import GlowConfig
from tests.bert_flow_tf import records
from tests.refusals import user_error

# Of unlike lengths, one twice, one longer than 8 ids, one empty.
SENTENCES = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "", "w4", "w14 w15"]


def plain(tiny_encoder_dir, **options):
    return BertFlow.from_hub(str(tiny_encoder_dir), **{"max_seq_length": 8, **options})


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    """The golden data's BERT without a flow."""
    return plain(tiny_encoder_dir)


@pytest.fixture(scope="module")
def loaded(sts_run):
    return BertFlow.load(sts_run)


def test_loaded_run_gives_the_cosines_that_the_run_predicted(loaded, sts_run):
    rows = [line.split("\t") for line in (sts_run.parent / "STS-B" / "test.tsv").read_text().splitlines()[1:]]
    a, b = loaded.encode([row[7] for row in rows]), loaded.encode([row[8] for row in rows])
    predicted = np.loadtxt(sts_run / "test_results.tsv")
    np.testing.assert_allclose(np.diag(loaded.similarity(a, b)), predicted, rtol=0, atol=1e-6)


def test_run_that_trained_its_encoder_gives_its_weights(tiny_source, tmp_path):
    model = records.model(pooling="cls", max_seq_length=8)
    config = records.run_config(tiny_source, model=model, encoder_trained=True, num_labels=3)
    trained = build_model(tiny_source, model, num_labels=3)
    for variable in trained.encoder.variables_by_name.values():
        variable.assign_add(0.01 * tf.ones_like(variable))
    parts = checkpoint_of(trained, with_encoder=True)
    tf.train.CheckpointManager(
        tf.train.Checkpoint(**parts), str(tmp_path), max_to_keep=1, checkpoint_name="model.ckpt"
    ).save(checkpoint_number=2)
    write_json(tmp_path / "config.json", config)
    (tmp_path / "train_results.json").write_text("{}")
    loaded = BertFlow.load(tmp_path)
    expected = trained.encoder(loaded.tokenizer(tf.constant(SENTENCES), 8), training=False)
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, rtol=0, atol=1e-5)
    untrained = BertFlow.from_hub(tiny_source.bert_hub, sentence_embedding_type="cls", max_seq_length=8)
    assert np.abs(untrained.encode(SENTENCES) - loaded.encode(SENTENCES)).max() > 1e-2


def test_checkpoint_can_be_named(loaded, sts_run):
    first = BertFlow.load(sts_run / "model.ckpt-0").encode("w1 w2")
    assert np.abs(first - loaded.encode("w1 w2")).max() > 1e-3


def test_encode_applies_flow_then_low_dim(loaded, tiny_encoder_dir):
    u = plain(tiny_encoder_dir, sentence_embedding_type="avg-last-2").encode(SENTENCES)
    np.testing.assert_allclose(loaded.encode(SENTENCES), loaded.flow.forward(u), rtol=1e-4, atol=1e-4)
    reduced = plain(tiny_encoder_dir, sentence_embedding_type="avg-last-2", low_dim=4)
    np.testing.assert_allclose(
        reduced.encode(SENTENCES), u.reshape(len(SENTENCES), 4, 8).mean(axis=-1), rtol=0, atol=1e-5
    )
    assert reduced.embedding_size == 4


def test_both_sides_of_the_flow_are_what_each_is_alone(sts_run, tiny_encoder_dir):
    model = BertFlow.load(sts_run)
    for _ in range(2):
        u = model.encode_pooled(SENTENCES)
        np.testing.assert_allclose(model.after_flow(u), model.encode(SENTENCES), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(u, plain(tiny_encoder_dir, pooling="avg-last-2").encode(SENTENCES))
        # They follow a flow that changes.
        model.flow.trainable_variables[0].assign_add([1.0] * 32)


def test_bfloat16_is_near_float32(loaded, sts_run):
    rounded = BertFlow.load(sts_run, dtype="bfloat16")
    assert rounded.dtype == "bfloat16"
    for ask in ("encode", "log_prob"):
        found, expected = getattr(rounded, ask)(SENTENCES), getattr(loaded, ask)(SENTENCES)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - expected).max() <= 0.05 * np.abs(expected).max()
    ids = loaded.tokenizer(tf.constant(SENTENCES), 8)
    np.testing.assert_array_equal(rounded.encoder(ids), loaded.encoder(ids))


def test_a_single_string_gives_one_vector_and_no_sentence_an_empty_array(model):
    np.testing.assert_array_equal(model.encode("w4"), model.encode(["w4"])[0])
    assert model.encode([]).shape == (0, 32)
    assert model.encode(iter([])).shape == (0, 32)


def test_normalized_embeddings_have_norm_1_and_the_same_cosines(model):
    embeddings, normalized = model.encode(SENTENCES), model.encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(normalized, axis=-1), 1.0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        model.similarity(embeddings, embeddings[:2]), normalized @ normalized[:2].T, rtol=0, atol=1e-6
    )


def test_progress_bar_is_shown_when_asked_for(model, capsys):
    model.encode(SENTENCES, show_progress_bar=True)
    assert "encode: 100%" in capsys.readouterr().err
    model.encode(SENTENCES)
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def flow_file(tmp_path_factory):
    """Configuration of a flow of one step."""
    path = tmp_path_factory.mktemp("flow") / "one_step.json"
    path.write_text(json.dumps(dataclasses.asdict(GlowConfig(n_levels=1, depth=1))))
    return str(path)


def test_fit_learns_a_flow_that_is_the_same_for_the_same_seed_and_encode_follows_it(tiny_encoder_dir, flow_file):
    sentences = [f"w{i} w{j}" for i in range(9) for j in range(3)]
    options = {"epochs": 8, "batch_size": 6, "flow_model_config": flow_file}
    model = plain(tiny_encoder_dir)
    with pytest.warns(UserWarning, match="fit: 36 steps on 27 sentences; after fewer than 100"):
        assert model.fit(sentences, **options, learning_rate=1e-9) is model
    bits = model.bits_per_dim(sentences).mean()
    before = model.encode(SENTENCES)
    for variable in model.flow.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    u = model.encoder(model.tokenizer(tf.constant(SENTENCES), model.max_seq_length))
    np.testing.assert_allclose(model.encode(SENTENCES), model.flow.forward(u), rtol=1e-5, atol=1e-5)
    assert np.abs(model.encode(SENTENCES) - before).max() > 1e-2
    model.fit(sentences, **options, learning_rate=1e-2)
    assert model.bits_per_dim(sentences).mean() < bits - 0.1
    learned = model.encode(SENTENCES)
    again = plain(tiny_encoder_dir).fit(sentences, **options, learning_rate=1e-2)
    np.testing.assert_array_equal(again.encode(SENTENCES), learned)
    other = again.fit(sentences, **options, learning_rate=1e-2, seed=7)
    assert np.abs(other.encode(SENTENCES) - learned).max() > 1e-3


def test_fit_learns_long_enough_and_says_what_changes_on_sentences_that_it_has_not_learned(tiny_encoder_dir, flow_file):
    sentences = [f"w{i} w{j}" for i in range(20) for j in range(12)]
    options = {"batch_size": 32, "flow_model_config": flow_file, "dev_fraction": 0.1}
    model = plain(tiny_encoder_dir).fit([*sentences, *sentences], **options)
    settings = model.record.flow.training.settings
    # Of 240 different sentences 24 are held out, wherever they occur.
    assert (settings["sentences"], settings["held_out"], settings["epochs"]) == (432, 24, 23)
    assert settings["steps"] == len(model.history_.losses) == 310
    change = model.history_.change
    assert (change.before.embeddings, change.after.embeddings) == (24, 24)
    pairs = np.corrcoef(change.before.spectrum, change.after.spectrum)
    assert pairs[0, 1] < 1
    assert change.flow_bits_per_dim == pytest.approx(float(model.history_.losses[-10:].mean()), abs=0.5)
    assert model.fit(sentences, **options | {"dev_fraction": 0}).history_.change is None
    with user_error("dev_fraction: found 1"):
        model.fit(sentences, **options | {"dev_fraction": 1})


def test_fit_that_diverges_leaves_the_model_as_it_was(tiny_encoder_dir, flow_file):
    model = plain(tiny_encoder_dir)
    expected = model.encode(SENTENCES)
    with pytest.raises(UserError, match=r"not finite|expected finite ones"):
        model.fit(SENTENCES, batch_size=2, epochs=4, learning_rate=1e6, flow_model_config=flow_file)
    assert model.flow is None
    np.testing.assert_array_equal(model.encode(SENTENCES), expected)


def test_fit_names_what_does_not_fit(model):
    for options, named in (
        ({}, "found 6 sentences, expected at least the 64 of one step"),
        ({"batch_size": 2, "epochs": 0.1}, "found 6 samples and 0.1 epochs, which gives 0 steps of 2"),
        ({"batch_size": 2, "flow_model_config": "config_l9"}, "flow_model_config: "),
        ({"batch_size": 2, "seed": -1}, "seed: found -1, expected 0 or more"),
    ):
        with pytest.raises(UserError, match=named):
            model.fit(SENTENCES, **options)


def test_what_is_asked_of_a_flow_needs_one(model):
    for ask in (model.bits_per_dim, model.log_prob, model.inverse, model.sample):
        with pytest.raises(UserError, match="found a model without a flow, expected one"):
            ask(SENTENCES)


def test_run_is_saved_and_loaded_again(loaded, tmp_path):
    saved = BertFlow.from_pretrained(loaded.save(tmp_path / "saved"))
    np.testing.assert_array_equal(saved.encode(SENTENCES), loaded.encode(SENTENCES))
    assert saved.record.flow == loaded.record.flow and saved.record.flow.training.task == "sts-b"


def test_density_is_of_the_embedding_before_the_flow(loaded, tiny_encoder_dir):
    u = plain(tiny_encoder_dir, pooling="avg-last-2").encode(SENTENCES)
    expected = loaded.flow.log_prob(u).numpy()
    np.testing.assert_allclose(loaded.log_prob(SENTENCES), expected, rtol=1e-4)
    assert loaded.log_prob("w4") == pytest.approx(expected[1], rel=1e-4)
    np.testing.assert_allclose(loaded.bits_per_dim(SENTENCES), -expected / (32 * np.log(2)), rtol=1e-4)


def test_inverse_gives_back_the_embedding_before_the_flow_and_sample_draws_such(loaded, tiny_encoder_dir):
    u = plain(tiny_encoder_dir, pooling="avg-last-2").encode(SENTENCES)
    np.testing.assert_allclose(loaded.inverse(loaded.encode(SENTENCES)), u, rtol=0, atol=1e-4)
    np.testing.assert_allclose(loaded.inverse(loaded.encode("w4")), u[1], rtol=0, atol=1e-4)
    with pytest.raises(UserError, match=r"inverse: found an array of shape \[3\], expected \[n, 32\]"):
        loaded.inverse([1.0, 2.0, 3.0])
    drawn = loaded.sample(4, seed=1)
    np.testing.assert_array_equal(drawn, loaded.sample(4, seed=1))
    assert drawn.shape == (4, 32)


def test_a_generator_gives_what_a_list_gives_whatever_the_parts(model, monkeypatch):
    expected = model.encode(SENTENCES)
    computed = []
    encode = SentenceBatcher.encode_pieces
    monkeypatch.setattr(
        SentenceBatcher,
        "encode_pieces",
        lambda self, p, *a, **b: computed.append(p.nrows()) or encode(self, p, *a, **b),
    )
    monkeypatch.setattr(sentence_files, "PART", 2)
    np.testing.assert_allclose(model.encode(sentence for sentence in SENTENCES), expected, rtol=0, atol=1e-5)
    # "w4" is in the first part and in the third.
    assert computed == [5]
    found = list(model.encode_parts(iter(SENTENCES)))
    assert [part for part, _ in found] == [SENTENCES[:2], SENTENCES[2:4], SENTENCES[4:]]
    np.testing.assert_allclose(np.concatenate([values for _, values in found]), expected, rtol=0, atol=1e-5)


def test_output_is_what_sentence_transformers_arguments_say(model):
    expected = model.encode(SENTENCES)
    tensor = model.encode(SENTENCES, convert_to_tensor=True)
    assert isinstance(tensor, tf.Tensor)
    np.testing.assert_array_equal(tensor, expected)
    tensors = model.encode(SENTENCES, convert_to_numpy=False)
    assert [type(row) for row in tensors] == [type(tensor)] * len(SENTENCES)
    np.testing.assert_array_equal(tensors, expected)


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        (["w1", None], {}, "sentences[1]: found"),
        (None, {}, "sentences: found NoneType None, expected strings in a list or another ordered iterable"),
        (b"w1", {}, "sentences: found bytes b'w1', expected strings"),
        ({"w1"}, {}, "sentences: found set {'w1'}, expected strings"),
        (["w1"], {"output_value": "cls"}, "output_value: found 'cls', expected sentence_embedding"),
    ],
)
def test_what_cannot_be_encoded_is_one_line(model, sentences, options, message):
    with user_error(message):
        model.encode(sentences, **options)


def test_similarity_takes_sentences_and_embeddings(model):
    embeddings = model.encode(SENTENCES)
    expected = model.similarity(embeddings, embeddings)
    np.testing.assert_allclose(model.similarity(SENTENCES, embeddings), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.similarity(np.array(SENTENCES), embeddings), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.similarity("w4", iter(SENTENCES)), expected[1:2], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.similarity(embeddings[1], embeddings.tolist()), expected[1:2], rtol=0, atol=1e-6)
    for a, message in (
        ([], "a: found shape [0], expected sentences or embeddings"),
        ({"w1"}, "a: found set {'w1'}"),
        ([[1.0], [2.0]], "similarity: found 1 and 32 channels"),
        (np.ones([2, 3, 4]), "a: found shape [2, 3, 4], expected sentences or embeddings [n, D]"),
    ):
        with user_error(message):
            model.similarity(a, embeddings)


def test_embed_is_a_map_function_of_tf_data(model):
    batches = tf.data.Dataset.from_tensor_slices(SENTENCES).batch(4).map(model.embed)
    assert batches.element_spec.shape.as_list() == [None, 32]
    np.testing.assert_allclose(np.concatenate(list(batches)), model.encode(SENTENCES), rtol=0, atol=1e-5)


def test_export_is_a_layer_of_tensorflow_hub_in_keras_and_in_tf_data(loaded, sts_version):
    expected = loaded.encode(SENTENCES)
    layer = hub.KerasLayer(str(sts_version))
    keras_model = tf_keras.Sequential([tf_keras.Input([], dtype=tf.string), layer])
    np.testing.assert_allclose(keras_model(tf.constant(SENTENCES)), expected, rtol=0, atol=1e-5)
    (mapped,) = tf.data.Dataset.from_tensor_slices(SENTENCES).batch(len(SENTENCES)).map(layer)
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=1e-5)


def test_what_is_no_finished_run_of_its_encoder_is_named(sts_run, tmp_path):
    with pytest.raises(UserError, match="holds neither"):
        BertFlow.load(tmp_path)
    run = shutil.copytree(sts_run, tmp_path / "copy")
    config = json.loads((run / "config.json").read_text())
    config["encoder"]["fingerprint"] = "0" * 64
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"expected the recorded one, {'0' * 64}"):
        BertFlow.load(run)
    (run / "train_results.json").unlink()
    with pytest.raises(UserError, match="training has not finished"):
        BertFlow.load(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype: found 'float16', expected 'float32' or 'bfloat16'"),
        ({"dtype": tf.bfloat16}, "dtype: found tf.bfloat16, expected"),
        ({"max_seq_length": 25}, "max_seq_length: found 25, expected 3 to 24"),
        ({"max_seq_length": 2}, "max_seq_length: found 2, expected 3 to 24"),
    ],
)
def test_options_that_do_not_fit_are_named(tiny_encoder_dir, options, message):
    with user_error(message):
        plain(tiny_encoder_dir, **options)


def test_nothing_is_written_under_the_name_of_an_address(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("w1\n")
    for write in (model.save, model.export, lambda address: model.encode_dataset("x.txt", address)):
        with user_error(": found an address, expected a path of this machine, mounted perhaps"):
            write("gs://bucket/out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    # To read from it is another thing.
    fsspec.filesystem("memory").pipe_file("/texts/x.txt", b"w1\n")
    assert list(model.encode_dataset("memory:///texts/x.txt", "out").parts.values()) == [1]
