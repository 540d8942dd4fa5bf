"""A SavedModel that needs nothing beside it and answers as the model it was made of."""

import contextlib
import copy
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_flow_tf.api import BertFlow
from bert_flow_tf.atomic import new_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.serving import export as exporting
from bert_flow_tf.serving.export import CHECKED_SENTENCES
from bert_flow_tf.serving.warmup import read_warmup_requests
from glow.config import GlowConfig
from glow.flow import Glow
from tests.glow.bijector_checks import perturb

SENTENCES = ["w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13"]

# Knows nothing of this project, as a server does not.
_CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text
answer = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](sentences=tf.constant(json.loads(sys.argv[2])))
assert not [name for name in sys.modules if name.split(".")[0] in ("bert_flow_tf", "glow")]
print(json.dumps(answer["embedding"].numpy().tolist()))
"""


@pytest.fixture(scope="module")
def model(sts_run):
    return BertFlow.load(sts_run)


@pytest.fixture(scope="module")
def rename_of(model, tmp_path_factory):
    """(`Exported`, files of the version at the moment in which its folder was renamed into place)."""
    files = []

    @contextlib.contextmanager
    def watched(path, **options):
        with new_folder(path, **options) as folder:
            yield folder
            files.extend(files_below(folder))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "new_folder", watched)
        exported = model.export(tmp_path_factory.mktemp("export") / "model")
    return exported, files


@pytest.fixture(scope="module")
def exported(rename_of):
    return rename_of[0]


@pytest.fixture(scope="module")
def half(model, tmp_path_factory):
    """The export in bfloat16."""
    return model.export(tmp_path_factory.mktemp("half") / "model", dtype="bfloat16")


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def served(exported):
    return tf.saved_model.load(str(exported.path)).signatures["serving_default"]


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported.path)).signatures


def test_signatures_take_and_give_what_they_promise(signatures):
    def specs(values):
        return {name: (spec.dtype, spec.shape.as_list()) for name, spec in values.items()}

    found = {
        name: (specs(one.structured_input_signature[1]), specs(one.structured_outputs))
        for name, one in signatures.items()
    }
    text, embedding = (tf.string, [None]), {"embedding": (tf.float32, [None, 32])}
    ids = (tf.int32, [None, None])
    assert found == {
        "serving_default": ({"sentences": text}, embedding),
        "pooled": ({"sentences": text}, embedding),
        "tokens": ({"input_word_ids": ids, "input_mask": ids, "input_type_ids": ids}, embedding),
        "similarity": ({"sentence_a": text, "sentence_b": text}, {"cosine": (tf.float32, [None])}),
    }


def test_served_embeddings_are_the_models(model, served):
    expected = model.encode(SENTENCES)
    found = served(sentences=tf.constant(SENTENCES))["embedding"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_similarity_is_the_cosine_of_the_embeddings(model, signatures):
    a, b = SENTENCES[:3], SENTENCES[1:]
    found = signatures["similarity"](sentence_a=tf.constant(a), sentence_b=tf.constant(b))["cosine"]
    u, v = (model.encode(sentences).astype(np.float64) for sentences in (a, b))
    expected = np.sum(u * v, axis=1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_tokens_of_the_preprocess_model_give_the_same_embeddings(model, signatures):
    tokens = model.tokenizer(tf.constant(SENTENCES), model.max_seq_length, pad_to_max=True)
    expected = model.encode(SENTENCES)
    found = signatures["tokens"](**tokens)["embedding"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_pooled_is_the_embedding_that_the_flow_takes(model, signatures):
    pooled = signatures["pooled"](sentences=tf.constant(SENTENCES))["embedding"]
    expected = model.encode(SENTENCES)
    np.testing.assert_allclose(model.flow.forward(pooled), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert np.abs(pooled - expected).max() > 0.1


def test_batch_of_nothing_gives_nothing(signatures):
    nothing = tf.constant([], tf.string)
    assert signatures["serving_default"](sentences=nothing)["embedding"].shape == (0, 32)
    assert signatures["pooled"](sentences=nothing)["embedding"].shape == (0, 32)
    assert signatures["similarity"](sentence_a=nothing, sentence_b=nothing)["cosine"].shape == (0,)
    for width in (0, 1, 5):
        tokens = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tf.zeros([0, width], tf.int32))
        assert signatures["tokens"](**tokens)["embedding"].shape == (0, 32)


def test_any_bytes_are_a_sentence(served, model):
    sentences = [b"w1 w2", b"w1 \xff\xfew2", b"", b"\x00\x01", b"w1 " * 350_000, b"\xed\xa0\x80"]
    found = served(sentences=tf.constant(sentences))["embedding"].numpy()
    assert np.isfinite(found).all()
    # What is not UTF-8 is dropped; of a long sentence only its beginning counts.
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-5 * np.abs(found).max())
    np.testing.assert_allclose(found[4], model.encode("w1 " * 50), rtol=0, atol=1e-5 * np.abs(found).max())
    for row in (3, 5):
        np.testing.assert_allclose(found[row], found[2], rtol=0, atol=1e-5 * np.abs(found).max())


def tokens(ids=((2, 5, 3),), mask=((1, 1, 1),), types=((0, 0, 0),)):
    return {
        name: tf.constant(value, tf.int32)
        for name, value in (("input_word_ids", ids), ("input_mask", mask), ("input_type_ids", types))
    }


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (tokens(ids=((2, 64, 3),)), r"input_word_ids: found. .2. .to. .64. .expected 0 to 63"),
        (tokens(ids=((-1, 5, 3),)), r"input_word_ids: found. .-1."),
        (tokens(mask=((1, 1),)), r"input_mask: found shape. .1 2. .expected that of input_word_ids:. .1 3"),
        (tokens(mask=((0, 0, 0),)), r"input_mask: found a row of zeros"),
        (tokens(mask=((1, 2, 1),)), r"input_mask: found. .1. .to. .2. .expected 0 to 1"),
        (tokens(types=((0, 0, 0), (0, 0, 0))), r"input_type_ids: found shape"),
        (tokens(types=((0, 2, 1),)), r"input_type_ids: found. .0. .to. .2. .expected 0 to 1"),
        (tokens(*[((1,) * 600,)] * 3), r"input_word_ids: found. .600. .positions, expected at most"),
    ],
)
def test_tokens_that_do_not_fit_are_named_and_the_model_goes_on(signatures, inputs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures["tokens"](**inputs)
    assert np.isfinite(signatures["tokens"](**tokens())["embedding"]).all()


def test_similarity_of_unequal_numbers_is_refused(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"sentence_b: found. .1. .sentences, expected as many"):
        signatures["similarity"](sentence_a=tf.constant(["w1", "w2"]), sentence_b=tf.constant(["w1"]))


def operations(path):
    """Set of the kinds of operations in a SavedModel, those in its functions too."""
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    used = set()
    for meta_graph in saved.meta_graphs:
        graph = meta_graph.graph_def
        used |= {node.op for node in graph.node}
        used |= {node.op for function in graph.library.function for node in function.node_def}
        used -= {function.signature.name for function in graph.library.function}
    return used


def test_every_operation_is_tensorflows_or_tensorflow_texts(exported, half):
    """What a stock model server links; asked of a process that imports one, then the other, and nothing of ours."""
    used = operations(exported.path) | operations(half.path)
    assert "Cast" in operations(half.path)
    script = "import json, sys\n"
    for library in ("tensorflow", "tensorflow_text"):
        script += f"import {library}\nfrom tensorflow.python.framework import op_def_registry\n"
        script += "print(json.dumps([name for name in sys.argv[1:] if op_def_registry.get(name) is None]))\n"
    command = [sys.executable, "-c", script, *sorted(used)]
    done = subprocess.run(command, cwd=exported.path, capture_output=True, text=True, check=True)
    of_text, unknown = map(json.loads, done.stdout.splitlines()[-2:])
    assert of_text
    assert unknown == []


def test_options_of_an_export(model, tmp_path):
    path = model.export(tmp_path, low_dim=8, max_seq_length=4, normalize=True).path
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    found = served(sentences=tf.constant(SENTENCES))["embedding"].numpy()
    short = ["w1 w2", "", "W4,", "w5 w6"]
    expected = model.encode(short).reshape(4, 8, -1).mean(axis=-1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    description = json.loads((path / "assets.extra" / "config.json").read_text())
    assert (description["embedding_size"], description["max_seq_length"]) == (8, 4)


def test_bfloat16_halves_the_matrices_and_keeps_directions(model, half):
    assert 0.99 < half.min_cosine < 1 - 1e-7
    signatures = tf.saved_model.load(str(half.path)).signatures
    assert set(signatures) == {"serving_default", "similarity", "tokens", "pooled"}
    found = signatures["serving_default"](sentences=tf.constant(SENTENCES))["embedding"].numpy()
    expected = model.encode(SENTENCES)
    cosines = np.sum(found * expected, axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert cosines.min() > 0.99
    reader = tf.train.load_checkpoint(str(half.path / "variables" / "variables"))
    kept = [
        (shape, reader.get_variable_to_dtype_map()[name])
        for name, shape in reader.get_variable_to_shape_map().items()
        if name.startswith("encoder/") and len(shape) > 1
    ]
    assert ([64, 32], tf.bfloat16) in kept
    assert {dtype for _, dtype in kept} == {tf.bfloat16}
    # Six of each of three layers, and the tables of words and types: none is left behind as a constant of the graph.
    assert len(kept) == 20
    assert signatures["serving_default"](sentences=tf.constant([], tf.string))["embedding"].shape == (0, 32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low_dim": 5}, r"--low_dim: found 5, expected a divisor of the embedding size 32"),
        ({"max_seq_length": 2}, r"--max_seq_length: found 2, expected 3 to "),
        ({"max_seq_length": 513}, r"--max_seq_length: found 513, expected 3 to "),
        ({"dtype": "float16"}, r"--dtype: found float16, expected float32 or bfloat16"),
    ],
)
def test_option_that_does_not_fit_is_named(model, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        model.export(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_self_check_reports_the_difference_that_there_is(model, exported, served):
    live = model.encode(CHECKED_SENTENCES)
    found = served(sentences=tf.constant(CHECKED_SENTENCES))["embedding"].numpy()
    assert exported.max_value == pytest.approx(np.abs(live).max(), rel=1e-5)
    assert exported.max_difference == pytest.approx(np.abs(found - live).max(), abs=1e-5 * exported.max_value)
    assert exported.min_cosine == pytest.approx(1, abs=1e-6)


def test_folder_holds_vocabulary_and_a_description_without_paths(model, exported):
    assert (exported.path / "assets" / "vocab.txt").read_text().split("\n")[5] == "w0"
    text = (exported.path / "assets.extra" / "config.json").read_text()
    description = json.loads(text)
    assert description["encoder_fingerprint"] == model.source.fingerprint
    assert (description["sentence_embedding_type"], description["max_seq_length"]) == ("avg-last-2", 8)
    assert description["flow_config"]["n_levels"] == 3
    assert str(model.source.encoder_dir.parent) not in text


def test_another_process_serves_it_without_the_run_the_encoder_or_this_project(model, exported, tmp_path):
    moved = shutil.copytree(exported.path, tmp_path / "1")
    kept = model.source.encoder_dir
    hidden = kept.rename(kept.with_name("hidden"))
    try:
        command = [sys.executable, "-c", _CLIENT, str(moved), json.dumps(SENTENCES)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        hidden.rename(kept)
    assert done.returncode == 0, done.stderr
    expected = model.encode(SENTENCES)
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_encoder_without_flow_and_with_dropout_is_exported_without_either(small_encoder_dir, tmp_path):
    model = BertFlow.from_hub(str(small_encoder_dir), max_seq_length=10)
    path = model.export(tmp_path, version=3, normalize=True).path
    assert path == tmp_path / "3"
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    sentences = ["The cat sat.", "cats"]
    first, second = (served(sentences=tf.constant(sentences))["embedding"].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, model.encode(sentences, normalize_embeddings=True), rtol=0, atol=1e-6)
    assert json.loads((path / "assets.extra" / "config.json").read_text())["normalized"] is True


@pytest.mark.parametrize("value", [np.nan, 2.0])
def test_export_that_answers_otherwise_is_refused_and_leaves_nothing(model, tmp_path, monkeypatch, value):
    live = exporting._live_embeddings
    monkeypatch.setattr(exporting, "_live_embeddings", lambda *args: live(*args) * np.float32(value))
    with pytest.raises(UserError, match=r"differs from the model by .*nothing was written"):
        model.export(tmp_path / "some" / "model")
    assert list(tmp_path.iterdir()) == []


def test_version_is_whole_when_it_gets_its_name(rename_of):
    """What a server that polls the folder sees first is all that it will ever see, warm-up requests included."""
    exported, files = rename_of
    assert {"saved_model.pb", "assets.extra/tf_serving_warmup_requests", "assets.extra/config.json"} < set(files)
    assert files_below(exported.path) == files


def test_flow_of_a_kind_that_cannot_be_folded_is_served_as_it_is(model, tmp_path):
    affine = copy.copy(model)
    config = GlowConfig(n_levels=2, depth=1, coupling_width=4, coupling="affine", permutation=False)
    affine.flow = Glow(config, model.encoder.embedding_size, seed=0)
    perturb(affine.flow.trainable_variables, seed=1)
    exported = affine.export(tmp_path / "affine")
    assert exported.max_difference <= 1e-5 * exported.max_value
    assert "MatrixBandPart" in operations(exported.path)


def test_versions_follow_each_other_and_stay_unless_overwritten(model, tmp_path):
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "saved_model.pb").write_text("old")
    assert model.export(tmp_path).path == tmp_path / "5"
    with pytest.raises(UserError, match="exists, expected a new version, or --overwrite"):
        model.export(tmp_path, version=4)
    with pytest.raises(UserError, match="--overwrite: found no --version"):
        model.export(tmp_path, overwrite=True)
    assert (tmp_path / "4" / "saved_model.pb").read_text() == "old"
    model.export(tmp_path, version=4, overwrite=True)
    assert (tmp_path / "4" / "variables").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["4", "5"]


def test_what_an_operator_needs_is_beside_and_stays_as_edited(model, exported, tmp_path):
    beside = {path.name for path in exported.path.parent.iterdir()} - {"1"}
    assert beside == {"models.config", "batching_parameters.txt", "monitoring.config"}
    assert f'name: "{exported.path.parent.name}"' in (exported.path.parent / "models.config").read_text()
    requests = read_warmup_requests(exported.path / "assets.extra" / "tf_serving_warmup_requests")
    assert {signature for signature, _ in requests} == {"serving_default", "similarity", "tokens", "pooled"}
    (tmp_path / "batching_parameters.txt").write_text("mine\n")
    assert model.export(tmp_path).kept == (tmp_path / "batching_parameters.txt",)
    assert (tmp_path / "batching_parameters.txt").read_text() == "mine\n"
    with pytest.raises(UserError, match="model name: found 'a model'"):
        model.export(tmp_path / "a model")


def test_overwrite_replaces_nothing_but_an_export(model, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"without a saved_model\.pb"):
        model.export(tmp_path, version=1, overwrite=True)
    assert (tmp_path / "1" / "thesis.txt").read_text() == "mine"
