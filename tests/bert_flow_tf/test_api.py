"""BertFlow embeds as the original's command line, and learns a flow."""

import copy
import dataclasses
import doctest
import itertools
import json
import logging
import pickle
import shutil
from functools import partial

import fsspec
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from msgspec.structs import replace
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from bert_flow_tf import api
from bert_flow_tf.api import BertFlow
from bert_flow_tf.calibration.affine import SoftWhitening
from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.encoder import source
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.model.transformer import EmbeddingCalibrator
from bert_flow_tf.original.build import build_model, checkpoint_parts
from bert_flow_tf.tasks.scores import learning_in_words
from bert_flow_tf.vectors import texts as vector_texts
from glow.config import GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap
from tests.bert_flow_tf import records
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.refusals import user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

# The lengths differ; one comes twice, one has more than 8 ids, one is empty.
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
    rows = [
        line.split("\t")
        for line in (sts_run.parent / "STS-B" / "test.tsv").read_text().splitlines()[1:]
    ]
    a, b = loaded.encode([row[7] for row in rows]), loaded.encode([row[8] for row in rows])
    predicted = np.loadtxt(sts_run / "test_results.tsv")
    np.testing.assert_allclose(np.diag(loaded.similarity(a, b)), predicted, rtol=0, atol=1e-6)


def test_run_that_trained_its_encoder_gives_its_weights(tiny_source, tmp_path):
    record = records.model(pooling="cls", max_seq_length=8)
    trained = build_model(tiny_source, record, num_labels=3)
    for variable in trained.encoder.variables_by_name.values():
        variable.assign_add(0.01 * tf.ones_like(variable))
    checkpoint = tf.train.Checkpoint(**checkpoint_parts(trained, with_encoder=True))
    tf.train.CheckpointManager(checkpoint, str(tmp_path), 1, checkpoint_name="model.ckpt").save(
        checkpoint_number=2
    )
    config = records.run_config(tiny_source, model=record, encoder_trained=True, num_labels=3)
    write_json(tmp_path / "config.json", config)
    (tmp_path / "train_results.json").write_text("{}")
    loaded = BertFlow.load(tmp_path)
    expected = trained.encoder(loaded.tokenizer(tf.constant(SENTENCES), 8), training=False)
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, rtol=0, atol=1e-5)
    untrained = BertFlow.from_hub(
        tiny_source.bert_hub, sentence_embedding_type="cls", max_seq_length=8
    )
    assert np.abs(untrained.encode(SENTENCES) - loaded.encode(SENTENCES)).max() > 1e-2


def test_encode_applies_flow_then_low_dim(sts_run, tiny_encoder_dir):
    model, unreduced = (
        BertFlow.load(sts_run),
        plain(tiny_encoder_dir, sentence_embedding_type="avg-last-2"),
    )
    u = unreduced.encode(SENTENCES)
    for _ in range(2):
        np.testing.assert_array_equal(model.encode_pooled(SENTENCES), u)
        np.testing.assert_allclose(
            model.encode(SENTENCES), model.flow.forward(u), rtol=1e-4, atol=1e-4
        )
        np.testing.assert_allclose(
            model.after_flow(u), model.encode(SENTENCES), rtol=1e-4, atol=1e-4
        )
        # They follow a flow that changes.
        model.flow.trainable_variables[0].assign_add([1.0] * 32)
    reduced = plain(tiny_encoder_dir, sentence_embedding_type="avg-last-2", low_dim=4)
    means = u.reshape(len(SENTENCES), 4, 8).mean(axis=-1)
    np.testing.assert_allclose(reduced.encode(SENTENCES), means, rtol=0, atol=1e-5)
    assert reduced.embedding_size == 4
    later = plain(tiny_encoder_dir, sentence_embedding_type="avg-last-2")
    later.encode(SENTENCES)
    later.low_dim = 4
    np.testing.assert_array_equal(later.encode(SENTENCES), reduced.encode(SENTENCES))


def test_bfloat16_is_near_float32(loaded, sts_run):
    rounded = BertFlow.load(sts_run, dtype="bfloat16")
    assert rounded.dtype == "bfloat16"
    for ask in ("encode", "log_prob"):
        found, expected = getattr(rounded, ask)(SENTENCES), getattr(loaded, ask)(SENTENCES)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - expected).max() <= 0.05 * np.abs(expected).max()
    ids = loaded.tokenizer(tf.constant(SENTENCES), 8)
    np.testing.assert_array_equal(rounded.encoder.network(ids), loaded.encoder.network(ids))


def test_encode_gives_what_its_arguments_say(model, capsys):
    expected = model.encode(SENTENCES)
    np.testing.assert_array_equal(model.encode("w4"), model.encode(["w4"])[0])
    assert model.encode([]).shape == model.encode(iter([])).shape == (0, 32)
    normalized = model.encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_allclose(np.linalg.norm(normalized, axis=-1), 1.0, rtol=0, atol=1e-6)
    cosines = model.similarity(expected, expected[:2])
    np.testing.assert_allclose(cosines, normalized @ normalized[:2].T, rtol=0, atol=1e-6)
    tensor = model.encode(SENTENCES, convert_to_tensor=True)
    assert isinstance(tensor, tf.Tensor)
    tensors = model.encode(SENTENCES, convert_to_numpy=False)
    assert [type(row) for row in tensors] == [type(tensor)] * len(SENTENCES)
    for found in (tensor, tensors):
        np.testing.assert_array_equal(found, expected)
    assert capsys.readouterr().err == ""
    model.encode(SENTENCES, show_progress_bar=True)
    assert "encode: 100%" in capsys.readouterr().err


@pytest.fixture(scope="module")
def flow_file(tmp_path_factory):
    """Configuration of a flow of one step."""
    path = tmp_path_factory.mktemp("flow") / "one_step.json"
    path.write_text(json.dumps(dataclasses.asdict(GlowConfig(n_levels=1, depth=1))))
    return str(path)


def test_fit_learns_the_same_flow_from_the_same_seed(tiny_encoder_dir, flow_file):
    sentences = [f"w{i} w{j}" for i in range(9) for j in range(3)]
    options = {"epochs": 8, "batch_size": 6, "flow_model_config": flow_file}
    model = plain(tiny_encoder_dir)
    with pytest.warns(UserWarning, match="fit: 36 steps on 27 sentences; after fewer than 100"):
        assert model.fit(sentences, **options, learning_rate=1e-9) is model
    bits = model.bits_per_dim(sentences).mean()
    model.fit(sentences, **options, learning_rate=1e-2)
    assert model.bits_per_dim(sentences).mean() < bits - 0.1
    learned = model.encode(SENTENCES)
    again = plain(tiny_encoder_dir).fit(sentences, **options, learning_rate=1e-2)
    np.testing.assert_array_equal(again.encode(SENTENCES), learned)
    other = again.fit(sentences, **options, learning_rate=1e-2, seed=7)
    assert np.abs(other.encode(SENTENCES) - learned).max() > 1e-3


def test_fit_learns_long_enough_and_measures_held_out_sentences(tiny_encoder_dir, flow_file):
    sentences = [f"w{i} w{j}" for i in range(20) for j in range(12)]
    options = {"batch_size": 32, "flow_model_config": flow_file, "dev_fraction": 0.1}
    model = plain(tiny_encoder_dir).fit([*sentences, *sentences], **options)
    settings = model.record.flow.training.settings
    # Of 240 different sentences 48 are held out, wherever they occur.
    found = [settings[key] for key in ("sentences", "held_out", "epochs", "steps")]
    assert [*found, len(model.history_.losses)] == [384, 48, 25, 300, 300]
    before, after = model.history_.change.before, model.history_.change.after
    assert before.embeddings == after.embeddings == model.history_.witness.sentences == 48
    assert np.corrcoef(before.spectrum, after.spectrum)[0, 1] < 1
    assert str(model.history_) == f"{model.history_.witness}\n{model.history_.change}"
    assert model.fit(sentences, **options | {"dev_fraction": 0}).history_.change is None
    early = model.fit(sentences[::4], **options, learning_rate=0.01).record.flow.training.settings
    assert (
        early["epochs"] * early["sentences"] / 32 == pytest.approx(early["steps"])
        and 0 < early["steps"] < 300
    )


@pytest.mark.parametrize("method", ["whitening", "whitening-3", "sn", "natsv-2", "sn+natsv-1"])
def test_fit_by_another_method_is_that_calibration(method, tiny_encoder_dir, tmp_path):
    sentences = [f"w{i} w{j}" for i in range(20) for j in range(12)]
    model = plain(tiny_encoder_dir).fit(sentences, method=method, dev_fraction=0)
    u = model.encode_pooled(sentences)
    expected = model.encode_pooled(SENTENCES)
    for one in find_method(method).transformers:
        expected = one.fit(u).transform(expected)
        u = one.transform(u)
    found = model.encode(SENTENCES)
    assert model.embedding_size == expected.shape[1]
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_allclose(
        model.after_flow(model.encode_pooled(SENTENCES)), found, atol=1e-5 * np.abs(found).max()
    )
    again = BertFlow.load(model.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.encode(SENTENCES), found)
    assert again.fingerprint != plain(tiny_encoder_dir).fingerprint and method in repr(again)
    assert f"calibrated by {method}" in (tmp_path / "saved" / "README.md").read_text()
    for kind in ("savedmodel", "sentence-transformers") if method == "sn" else ():
        assert (
            model.export(tmp_path / kind, format=kind).max_difference <= 1e-4 * np.abs(found).max()
        )
    with user_error("log_prob"):
        again.log_prob(SENTENCES)


def test_fit_that_diverges_leaves_the_model_as_it_was(tiny_encoder_dir, flow_file):
    model = plain(tiny_encoder_dir)
    expected = model.encode(SENTENCES)
    with pytest.raises(UserError, match="try a smaller learning rate"):
        model.fit(SENTENCES, batch_size=2, epochs=4, learning_rate=1e6, flow_model_config=flow_file)
    assert model.flow is None
    np.testing.assert_array_equal(model.encode(SENTENCES), expected)


def test_arguments_that_do_not_fit_are_named(model, tiny_encoder_dir):
    only_with_a_flow = (model.bits_per_dim, model.log_prob, model.inverse, model.sample)
    for call, *messages in (
        (partial(model.fit, SENTENCES), "found 5 sentences, expected at least the 64 of one step"),
        (partial(model.fit, SENTENCES, batch_size=2, epochs=0.1), "which gives 0 steps of 2"),
        (
            partial(model.fit, SENTENCES, method="whitening"),
            "found 4 different sentences for whitening",
        ),
        (
            partial(model.fit, SENTENCES, batch_size=2, flow_model_config="config_l9"),
            "flow_model_config: ",
        ),
        (partial(model.fit, SENTENCES, batch_size=2, seed=-1), "seed: found -1"),
        (partial(model.fit, SENTENCES, batch_size=2, dev_fraction=1), "dev_fraction: found 1"),
        (
            partial(model.fit, SENTENCES, num_train_epochs=2),
            "num_train_epochs: found an argument",
            "epochs?",
        ),
        (
            partial(model.fit, SENTENCES, batch_size="2"),
            "batch_size: found 2, expected `int`, got `str`",
        ),
        (partial(model.fit, SENTENCES, seed=None), "seed: found None, expected `int`, got `null`"),
        (
            partial(model.fit, SENTENCES, method="soft-whitening-0.0"),
            "method: found 'soft-whitening-0.0'",
        ),
        (
            partial(model.fit, SENTENCES, method="whitening-33"),
            "expected at most the 32 channels",
        ),
        (partial(model.encode, SENTENCES[:1], batch_size=0), "batch_size: found 0"),
        *(
            (partial(model.fit, SENTENCES, pairs=x), "expected (first sentences, second")
            for x in ("x.tsv", [("a", "b", 1)], (["w1"], ["w2"], None), (["w1"], ["w2"], ["x"]))
        ),
        *(
            (partial(ask, np.ones([1, 32])), "found a model without a flow")
            for ask in only_with_a_flow
        ),
        (partial(model.encode, ["w1", None]), "sentences[1]: found"),
        *(
            (partial(model.encode, x), f"sentences: found {type(x).__name__} {x!r}")
            for x in (None, b"w1", {"w1"})
        ),
        *(
            (partial(plain, tiny_encoder_dir, dtype=x), f"dtype: found {x!r}")
            for x in ("float16", tf.bfloat16)
        ),
        (
            partial(plain, tiny_encoder_dir, max_seq_length=25),
            "max_seq_length: found 25, expected a whole number from 3 to 24",
        ),
        (
            partial(plain, tiny_encoder_dir, max_seq_length=2),
            "max_seq_length: found 2, expected a whole number from 3 to 24",
        ),
        (partial(model.similarity, [], SENTENCES), "a: found shape [0]"),
        (partial(model.similarity, {"w1"}, SENTENCES), "a: found set {'w1'}"),
        (
            partial(model.similarity, [[1.0], [2.0]], SENTENCES),
            "similarity: found 1 and 32 channels",
        ),
        (partial(model.similarity, np.ones([2, 3, 4]), SENTENCES), "a: found shape [2, 3, 4]"),
    ):
        with user_error(*messages):
            call()


def test_run_is_saved_and_loaded_again(loaded, tmp_path):
    saved = BertFlow.from_pretrained(loaded.save(tmp_path / "saved"))
    np.testing.assert_array_equal(saved.encode(SENTENCES), loaded.encode(SENTENCES))
    assert saved.record.flow == loaded.record.flow and saved.record.flow.training.task == "sts-b"


def test_a_model_is_pickled_and_copied(loaded, tiny_encoder_dir):
    expected = loaded.encode(SENTENCES)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded)).encode(SENTENCES), expected)
    other = copy.deepcopy(loaded)
    for variable in other.flow.trainable_variables:
        variable.assign(variable + 0.1)
    assert not np.allclose(other.encode(SENTENCES), expected)
    np.testing.assert_array_equal(loaded.encode(SENTENCES), expected)
    given = plain(tiny_encoder_dir)
    given.prompts = {"query": "w1 "}
    assert pickle.loads(pickle.dumps(given)).prompts == given.prompts


def test_tensorflow_does_not_warn_of_many_models(tiny_encoder_dir, caplog):
    model = plain(tiny_encoder_dir)
    for _ in range(6):
        one = copy.copy(model)
        one.encode(SENTENCES[:1]), one.encode(SENTENCES, batch_size=2)
    assert "retracing" not in caplog.text


def test_a_digest_of_all_weights_is_computed_when_asked_for(tiny_encoder_dir):
    model = plain(tiny_encoder_dir)
    # The fixture that shares encoders has asked for it.
    vars(model.source.pretrained).pop("fingerprint", None)
    model.encode(SENTENCES)
    copy.copy(model).encode(SENTENCES)
    assert "fingerprint" not in vars(model.source.pretrained)
    assert model.record.encoder.fingerprint == model.source.fingerprint


def test_texts_that_are_cut_are_counted(tiny_encoder_dir, caplog):
    model = plain(tiny_encoder_dir)
    logging.getLogger("absl").propagate = True
    for call in (
        partial(model.encode, SENTENCES),
        partial(model.encode, SENTENCES, batch_size=2),
        lambda: list(model.encode_blocks(SENTENCES)),
        partial(model.encode_pooled, SENTENCES),
    ):
        caplog.clear()
        call()
        assert (
            "1 of 6 texts are longer than 8 word pieces (max_seq_length) and were cut"
            in caplog.text
        )
    caplog.clear()
    model.encode(SENTENCES[:2])
    assert not caplog.text


def test_many_empty_texts_are_not_one_batch(tiny_encoder_dir):
    model = plain(tiny_encoder_dir)
    expected = model.encode([""])
    found = model.encode([""] * 3000)
    np.testing.assert_allclose(found, np.repeat(expected, 3000, axis=0), rtol=1e-5, atol=1e-5)


def test_density_inverse_and_samples_are_the_flows(loaded, tiny_encoder_dir):
    u = plain(tiny_encoder_dir, pooling="avg-last-2").encode(SENTENCES)
    expected = loaded.flow.log_prob(u).numpy()
    np.testing.assert_allclose(loaded.log_prob(SENTENCES), expected, rtol=1e-4)
    assert loaded.log_prob("w4") == pytest.approx(expected[1], rel=1e-4)
    without = loaded.log_prob("w4 w1")
    prompted = copy.copy(loaded)
    prompted.prompts, prompted.default_prompt_name = {"query": "w4 "}, "query"
    # A flow has learned sentences with their prompt.
    assert prompted.log_prob("w1") == without
    np.testing.assert_allclose(
        loaded.bits_per_dim(SENTENCES), -expected / (32 * np.log(2)), rtol=1e-4
    )
    assert loaded.bits_per_dim(SENTENCES).dtype == loaded.log_prob(SENTENCES).dtype == np.float32
    np.testing.assert_allclose(loaded.inverse(loaded.encode(SENTENCES)), u, rtol=0, atol=1e-4)
    np.testing.assert_allclose(loaded.inverse(loaded.encode("w4")), u[1], rtol=0, atol=1e-4)
    with user_error("inverse: found an array of shape [3], expected [n, 32]"):
        loaded.inverse([1.0, 2.0, 3.0])
    for seed in (2**31, -1, 1.5):
        with user_error(f"seed: found {seed}, expected a whole number from 0"):
            loaded.sample(4, seed=seed)
    drawn = loaded.sample(4, seed=1)
    np.testing.assert_array_equal(drawn, loaded.sample(4, seed=1))
    assert drawn.shape == (4, 32)


def test_a_generator_gives_what_a_list_gives(model, monkeypatch):
    expected = model.encode(SENTENCES)
    monkeypatch.setattr(vector_texts, "BLOCK_ROWS", 2)
    np.testing.assert_allclose(
        model.encode(sentence for sentence in SENTENCES), expected, rtol=0, atol=1e-5
    )
    found = list(model.encode_blocks(iter(SENTENCES)))
    assert [part for part, _ in found] == [SENTENCES[:2], SENTENCES[2:4], SENTENCES[4:]]
    np.testing.assert_allclose(
        np.concatenate([values for _, values in found]), expected, rtol=0, atol=1e-5
    )


def test_export_is_a_layer_in_keras_and_in_tf_data(loaded, sts_version):
    expected = loaded.encode(SENTENCES)
    layer = hub.KerasLayer(str(sts_version))
    keras_model = tf_keras.Sequential([tf_keras.Input([], dtype=tf.string), layer])
    np.testing.assert_allclose(keras_model(tf.constant(SENTENCES)), expected, rtol=0, atol=1e-5)
    (mapped,) = tf.data.Dataset.from_tensor_slices(SENTENCES).batch(len(SENTENCES)).map(layer)
    np.testing.assert_allclose(mapped, expected, rtol=0, atol=1e-5)


def test_what_is_no_finished_run_of_its_encoder_is_named(sts_run, tmp_path):
    run = shutil.copytree(sts_run, tmp_path / "copy")
    config = json.loads((run / "config.json").read_text())
    config["encoder"]["fingerprint"] = "0" * 64
    (run / "config.json").write_text(json.dumps(config))
    with user_error("0" * 64):
        BertFlow.load(run)
    (run / "train_results.json").unlink()
    with user_error("training has not finished"):
        BertFlow.load(run)


def test_nothing_is_written_under_the_name_of_an_address(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("w1\n")
    for write in (model.save, model.export, lambda address: model.encode_dataset("x.txt", address)):
        with user_error(": found an address, expected a path"):
            write("gs://bucket/out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    # To read from it is another thing.
    fsspec.filesystem("memory").pipe_file("/texts/x.txt", b"w1\n")
    assert list(model.encode_dataset("memory:///texts/x.txt", "out").parts.values()) == [1]


def test_few_different_sentences_are_said(tiny_encoder_dir):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    with user_error("fit: found one sentence 400 times, expected different ones"):
        model.fit(["w1 w2"] * 400)
    with pytest.warns(
        UserWarning, match="fit: found 20 different sentences; a sn learned from fewer than 100"
    ):
        model.fit([f"w{i}" for i in range(20)] * 20, method="sn")
    some = [f"w{i} w{j}" for i in range(10) for j in range(15)]
    with pytest.warns(
        UserWarning, match="different sentences; fewer than twice the 32 directions of whitening-32"
    ):
        model.fit(some[:50], method="whitening-32")


def test_threshold_is_the_cosine_of_random_pairs(tiny_encoder_dir):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    some = [f"w{i} w{j}" for i in range(10) for j in range(15)]
    found = model.threshold([*some, *some], 0.01)
    cosines = model.similarity(some, some)[np.triu_indices(150, 1)]
    assert found.sentences == 150 and abs(np.mean(cosines > found.cosine) - 0.01) < 1e-4


def test_the_example_of_the_class_prints_what_it_says(
    documented_encoder_dir, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source, "demo_encoder_dir", lambda: documented_encoder_dir)
    sentences = list(map(" ".join, itertools.product(TINY_WORDS[:25], repeat=2)))
    found = doctest.testmod(api, extraglobs={"sentences": sentences})
    assert found.attempted > 5 and not found.failed


@pytest.fixture(scope="module")
def plain_model(tiny_encoder_dir):
    """A model without a calibration, and texts of its words."""
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=16)
    return model, list(map(" ".join, itertools.product(TINY_WORDS[:12], repeat=2)))


@pytest.mark.parametrize("kind", ["flow", "affine"])
def test_a_calibration_of_ones_own_can_be_set(plain_model, tmp_path, kind):
    model, texts = copy.copy(plain_model[0]), plain_model[1]
    u = model.encode_pooled(texts)
    size = u.shape[1]
    own = Glow(GlowConfig(n_levels=2), size, seed=5)
    if kind == "affine":
        whitening = SoftWhitening(0.1).fit(u)
        own = AffineMap(size, whitening.mean_, whitening.matrix_)
    with user_error("flow: found variables of float64, expected float32"):
        model.flow = Glow(GlowConfig(n_levels=2), size, seed=5, dtype=tf.float64)
    model.flow = own
    np.testing.assert_allclose(model.encode(texts), own.forward(u), atol=1e-4)
    assert model.record.flow.method == kind and model.record.flow.verdict is None
    assert learning_in_words(model.record.flow) == f"{kind} of unknown training"
    again = BertFlow.from_pretrained(model.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))
    model.flow = None
    np.testing.assert_array_equal(model.encode(texts), plain_model[0].encode(texts))


@pytest.mark.parametrize("value", [3, Glow(GlowConfig(n_levels=2), 6, seed=0)])
def test_what_does_not_fit_the_encoder_is_no_calibration(plain_model, value):
    model = copy.copy(plain_model[0])
    with user_error("flow: found"):
        model.flow = value
    assert model.flow is None


def test_one_pooling_under_two_names_is_refused(tiny_encoder_dir):
    with user_error("pooling: found cls beside sentence_embedding_type=avg"):
        BertFlow.from_hub(tiny_encoder_dir, pooling="cls", sentence_embedding_type="avg")


def test_a_whitening_is_named_where_a_flow_is_needed(plain_model):
    model, texts = copy.copy(plain_model[0]), plain_model[1]
    model.fit(texts, method="soft-whitening-0.1")
    with user_error("log_prob: found a soft-whitening-0.1"):
        model.log_prob(texts)


def test_compare_learns_beside_the_models_own_calibration(plain_model):
    model, texts = plain_model
    rows = model.compare(texts, ["sn", "soft-whitening-0.1"])
    assert [row.method for row in rows] == ["none", "sn", "soft-whitening-0.1"]
    assert model.flow is None


def test_pairs_of_ones_own_are_scored(plain_model):
    model, texts = plain_model
    pairs = texts[:-1], texts[1:], [i % 5 for i in range(len(texts) - 1)]
    scores = model.evaluate(pairs)
    assert scores.tasks["pairs"].pairs == len(texts) - 1
    score = scores.tasks["pairs"].by_protocol["all"]
    assert -1 <= score <= 1
    _, columns, _, row = str(scores).splitlines()
    assert columns.split() == ["task", "split", "metric", "pairs", "x100", "Pearson"]
    assert row.split()[:5] == ["pairs", "all", "Spearman", "143", f"{100 * score:.2f}"]


def test_a_model_is_a_step_of_a_scikit_learn_pipeline(plain_model):
    model, texts = copy.copy(plain_model[0]), plain_model[1]
    labels = [text.startswith("w1") for text in texts]
    pipeline = make_pipeline(model, EmbeddingCalibrator("sn"), LogisticRegression())
    pipeline.set_params(bertflow__frozen=False).fit(texts, labels)
    assert pipeline.predict(texts).shape == (len(texts),)
    assert model.flow is not None and pipeline[:2].transform(texts).shape[0] == len(texts)


def test_lists_of_numbers_are_those_of_encode(plain_model):
    model, texts = plain_model
    np.testing.assert_array_equal(model.embed_documents(texts[:3]), model.encode(texts[:3]))
    assert model.embed_query(texts[0]) == model.encode(texts[0]).tolist()


@pytest.mark.parametrize("normalizes", [False, True])
def test_every_way_to_an_embedding_gives_the_same(plain_model, normalizes):
    model, texts = copy.copy(plain_model[0]), plain_model[1]
    settings = {"normalize": normalizes, "pooling": model.sentence_embedding_type}
    pretrained = model.source.pretrained
    record = replace(pretrained.record, **settings)
    pretrained = dataclasses.replace(pretrained, record=record)
    source = dataclasses.replace(model.source, pretrained=pretrained)
    encoder = TextEncoder(source, model.encoder.network, max_seq_length=model.max_seq_length)
    model = BertFlow(encoder, origin=model.origin)
    model.prompts = {"query": "w3 "}
    model.default_prompt_name = "query"
    expected = model.encode(texts)
    assert np.allclose(np.linalg.norm(expected, axis=1), 1) == normalizes
    blocks = np.concatenate([part for _, part in model.encode_blocks(texts)])
    np.testing.assert_allclose(blocks, expected, atol=1e-6)
    embedded = tf.function(model.embed)(tf.constant(texts))
    np.testing.assert_allclose(embedded, expected, atol=1e-5)


def test_a_calibration_without_variables_is_neither_saved_nor_exported(plain_model, tmp_path):
    model, texts = copy.copy(plain_model[0]), plain_model[1]
    model.fit(texts, method=QuantileTransformer(n_quantiles=20))
    for write in (model.save, model.export):
        with user_error("found QuantileTransformer", "not affine"):
            write(tmp_path / "out")
    assert not (tmp_path / "out").exists()
