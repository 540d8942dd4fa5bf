"""The export as a model server runs it, without Python: TensorFlow's C API and TensorFlow Text's operations alone.

`c_api.py` beside this file is the program that runs it; here the answers are compared with the model's own.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

_PROGRAM = pathlib.Path(__file__).with_name("c_api.py")
_WHEELS = pathlib.Path(tf.__file__).parents[1]
_SENTENCES = ("w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "w1", "w2 w2", "Señor w3 東京 🙂")
_THREADS = 8
_INVALID_ARGUMENT = 3
_SIGNATURES = ("pooled", "serving_default", "similarity", "tokens")
# Signature, and sentences: none, one and many.
_GOOD = [(name, sentences) for name in _SIGNATURES for sentences in ((), _SENTENCES[:1], _SENTENCES)]


def _tokens(ids=((2, 5, 3),), mask=((1, 1, 1),), types=((0, 0, 0),)):
    values = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    return {name: np.array(value, np.int32) for name, value in values.items()}


def _pair(a, b):
    return {"sentence_a": np.array(a, object), "sentence_b": np.array(b, object)}


# Signature, inputs that do not fit it, and what the error must say.
_REFUSED = (
    ("serving_default", {"sentences": np.array([["w1"]], object)}, "sentences"),
    ("serving_default", {"sentences": np.array("w1", object)}, "sentences"),
    ("serving_default", {"sentences": np.array([1], np.int32)}, "to be string but int32"),
    ("similarity", _pair(["w1", "w2"], ["w1"]), "sentence_b: found"),
    ("similarity", _pair("w1", ["w1"]), "sentence_a"),
    ("tokens", _tokens(ids=((2, 64, 3),)), "input_word_ids: found] [2] [to] [64] [expected 0 to 63"),
    ("tokens", _tokens(ids=((-1, 5, 3),)), "input_word_ids: found] [-1]"),
    ("tokens", _tokens(mask=(1, 1, 1)), "input_mask"),
    ("tokens", _tokens(mask=((1, 1),)), "input_mask: found shape] [1 2] [expected that of input_word_ids:] [1 3]"),
    ("tokens", _tokens(mask=((0, 0, 0),)), "input_mask: found a row of zeros"),
    ("tokens", _tokens(mask=((1, 2, 1),)), "input_mask: found] [1] [to] [2] [expected 0 to 1"),
    ("tokens", _tokens(types=((0, 0, 0), (0, 0, 0))), "input_type_ids: found shape"),
    ("tokens", _tokens(types=((0, 2, 1),)), "input_type_ids: found] [0] [to] [2] [expected 0 to 1"),
    ("tokens", _tokens(*[((1,) * 600,)] * 3), "input_word_ids: found] [600] [positions, expected at most"),
)
# Sentences that a client may send by mistake, and what they must be taken for: bytes that are not UTF-8 (0xff, half of
# a surrogate pair) and control characters are dropped, and a megabyte is cut at the model's max_seq_length.
_ODD = (("w1 \udcffw2", "w1 w2"), ("w3 " * 350_000, "w3 " * 8), ("\0\1", ""), ("\udced\udca0\udc80", ""))


def signatures_of(version):
    """dict of name -> SignatureDef, of the functions that a client may call."""
    (graph,) = SavedModel.FromString((version / "saved_model.pb").read_bytes()).meta_graphs
    found = graph.signature_def.items()
    return {name: one for name, one in found if one.method_name == "tensorflow/serving/predict"}


def inputs_of(model, name, sentences):
    """dict of input name -> array: what the signature `name` is asked for the embeddings of `sentences`."""
    if name == "tokens":
        tokens = model.tokenizer(tf.constant(sentences, tf.string), model.max_seq_length)
        return {key: value.numpy() for key, value in tokens.items()}
    return _pair(sentences, sentences[::-1]) if name == "similarity" else {"sentences": np.array(sentences, object)}


def expected_of(model, name, sentences):
    """The array that the signature `name` must give for `inputs_of` it."""
    embedding = model.encode(sentences, show_progress_bar=False).reshape(len(sentences), model.embedding_size)
    if name == "similarity":
        return cosines(embedding, embedding[::-1])
    if name == "pooled" and sentences:
        return model.encoder(model.tokenizer(tf.constant(sentences), model.max_seq_length), training=False).numpy()
    return embedding


def cosines(a, b):
    return np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def call(signature, inputs):
    """What `c_api.py` is asked: tensors by their names in the graph."""
    fed = {
        signature.inputs[key].name: {
            "dtype": "string" if array.dtype == object else str(array.dtype),
            "shape": list(array.shape),
            "values": array.ravel().tolist(),
        }
        for key, array in inputs.items()
    }
    (output,) = signature.outputs.values()
    return {"inputs": fed, "outputs": [output.name]}


def array_of(answer):
    (output,) = answer["outputs"]
    return np.array(output["values"], np.float32).reshape(output["shape"])


def assert_agrees(answer, expected):
    found = array_of(answer)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def run_program(version, asked):
    """What `c_api.py` says to calls, each a signature's name and inputs."""
    signatures = signatures_of(version)
    calls = [call(signatures[name], inputs) for name, inputs in asked]
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), str(_WHEELS), str(version)],
        input=json.dumps({"calls": calls, "threads": _THREADS}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def good_calls(sts_model):
    return [(name, inputs_of(sts_model, name, sentences)) for name, sentences in _GOOD]


@pytest.fixture(scope="module")
def program(sts_version, good_calls):
    """What `c_api.py` says to the calls that are refused, those of odd sentences, and the good ones, in this order."""
    refused = [(name, inputs) for name, inputs, _ in _REFUSED]
    odd = [("serving_default", {"sentences": np.array([sentence], object)}) for sentence, _ in _ODD]
    return run_program(sts_version, [*refused, *odd, *good_calls])


@pytest.fixture(scope="module")
def answers(program):
    """(to the refused calls, to the odd ones, to the good ones) of each thread, the main one's first."""
    n, m = len(_REFUSED), len(_REFUSED) + len(_ODD)
    assert len(program["threads"]) == _THREADS
    return [(every[:n], every[n:m], every[m:]) for every in (program["answers"], *program["threads"])]


def test_no_python_of_tensorflow_or_of_this_project_takes_part(program):
    packages = {module.split(".")[0] for module in program["modules"]}
    assert not packages & {"bert_flow_tf", "glow", "keras", "numpy", "tensorflow", "tensorflow_text", "tf_keras"}


def test_every_signature_agrees_with_the_model_for_no_one_and_many_sentences(sts_model, sts_version, answers):
    assert set(_SIGNATURES) == signatures_of(sts_version).keys()
    expected = [expected_of(sts_model, name, list(sentences)) for name, sentences in _GOOD]
    for _, _, good in answers:
        for answer, array in zip(good, expected, strict=True):
            assert_agrees(answer, array)


def test_what_does_not_fit_a_signature_is_an_invalid_argument_and_all_others_are_served(answers):
    for refused, _, _ in answers:
        for (name, _, text), answer in zip(_REFUSED, refused, strict=True):
            assert answer["code"] == _INVALID_ARGUMENT, name
            assert text in answer["message"]


def test_odd_sentences_are_embedded_as_what_is_left_of_them(sts_model, answers):
    for _, odd, _ in answers:
        for (_, sentence), answer in zip(_ODD, odd, strict=True):
            assert_agrees(answer, expected_of(sts_model, "serving_default", [sentence]))


def test_bfloat16_gives_like_directions_for_every_signature_from_threads_too(sts_model, good_calls, bfloat16_export):
    found = run_program(bfloat16_export.path, good_calls)
    embed = tf.saved_model.load(str(bfloat16_export.path)).signatures["serving_default"]
    for answers in (found["answers"], *found["threads"]):
        for (name, sentences), answer in zip(_GOOD, answers, strict=True):
            array, expected = array_of(answer), expected_of(sts_model, name, list(sentences))
            assert array.shape == expected.shape
            if name == "similarity":
                # Of its own embeddings: directions that differ from the model's by 0.99 leave a cosine much more room.
                own = embed(sentences=tf.constant(list(sentences), tf.string))["embedding"].numpy()
                np.testing.assert_allclose(array, cosines(own, own[::-1]), rtol=0, atol=0.002)
            else:
                # As an export itself demands; and no float32 in disguise.
                assert (cosines(array, expected) >= 0.99).all()
                assert not sentences or np.abs(array - expected).max() > 1e-4 * np.abs(expected).max()
