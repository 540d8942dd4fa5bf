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

from bert_flow_tf.api import BertFlow

_PROGRAM = pathlib.Path(__file__).with_name("c_api.py")
_WHEELS = pathlib.Path(tf.__file__).parents[1]
_SENTENCES = ("w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "w1", "w2 w2", "Señor w3 東京 🙂")
_BATCHES = ((), _SENTENCES[:1], _SENTENCES)
_THREADS = 8
_INVALID_ARGUMENT = 3
# Signature, inputs that do not fit it, and what the error must name.
_REFUSED = (
    ("serving_default", {"sentences": np.array([["w1"]], object)}, "sentences"),
    ("serving_default", {"sentences": np.array("w1", object)}, "sentences"),
    ("serving_default", {"sentences": np.array([1], np.int32)}, "to be string but int32"),
    ("similarity", {"sentence_a": np.array(["w1"], object), "sentence_b": np.array([], object)}, "sentence_b"),
    ("tokens", dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), np.array([[-1]], np.int32)), "_ids"),
    ("similarity", {"sentence_a": np.array("w1", object), "sentence_b": np.array(["w1"], object)}, "sentence_a"),
    (
        "tokens",
        {
            "input_word_ids": np.ones([1, 2], np.int32),
            "input_mask": np.ones([2], np.int32),
            "input_type_ids": np.zeros([1, 2], np.int32),
        },
        "input_mask",
    ),
)
# Sentences that a client may send by mistake, and what they must be taken for: bytes that are not UTF-8 (0xff) are
# dropped, and a megabyte is cut at the model's max_seq_length.
_ODD = (("w1 \udcffw2", "w1 w2"), ("w3 " * 350_000, "w3 " * 8))


@pytest.fixture(scope="module")
def model(sts_run):
    return BertFlow.load(sts_run)


@pytest.fixture(scope="module")
def version(sts_version):
    return sts_version


@pytest.fixture(scope="module")
def signatures(version):
    return signatures_of(version)


def signatures_of(version):
    """dict of name -> SignatureDef, of the functions that a client may call."""
    saved = SavedModel.FromString((version / "saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    assert list(graph.meta_info_def.tags) == ["serve"]
    return {
        name: signature
        for name, signature in graph.signature_def.items()
        if signature.method_name == "tensorflow/serving/predict"
    }


def inputs_of(model, name, sentences):
    """dict of input name -> array: what the signature `name` is asked for the embeddings of `sentences`."""
    if name == "tokens":
        tokens = model.tokenizer(tf.constant(sentences, tf.string), model.max_seq_length)
        return {key: value.numpy() for key, value in tokens.items()}
    if name == "similarity":
        return {"sentence_a": np.array(sentences, object), "sentence_b": np.array(sentences[::-1], object)}
    return {"sentences": np.array(sentences, object)}


def expected_of(model, name, sentences):
    """dict of output name -> array that the signature `name` must give for `inputs_of` it."""
    embedding = model.encode(sentences, show_progress_bar=False).reshape(len(sentences), model.embedding_size)
    if name == "similarity":
        units = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
        return {"cosine": np.sum(units * units[::-1], axis=1)}
    if name == "pooled" and sentences:
        tokens = model.tokenizer(tf.constant(sentences, tf.string), model.max_seq_length)
        return {"embedding": model.encoder(tokens, training=False).numpy()}
    return {"embedding": embedding}


def call(signature, inputs):
    """What `c_api.py` is told: tensors by their names in the graph."""
    fed = {
        signature.inputs[key].name: {
            "dtype": "string" if array.dtype == object else str(array.dtype),
            "shape": list(array.shape),
            "values": array.ravel().tolist(),
        }
        for key, array in inputs.items()
    }
    return {"inputs": fed, "outputs": [signature.outputs[key].name for key in sorted(signature.outputs)]}


def named(signature, answer):
    """dict of output name -> array of an answer of `c_api.py`."""
    arrays = [np.array(output["values"], np.float32).reshape(output["shape"]) for output in answer["outputs"]]
    return dict(zip(sorted(signature.outputs), arrays, strict=True))


def assert_agrees(found, expected):
    """Outputs of the same names and shapes, and values that are the same to 1e-5."""
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert found[key].shape == array.shape
        np.testing.assert_allclose(found[key], array, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def good_calls(signatures):
    """(signature's name, sentences) of what is called in turn."""
    return [(name, sentences) for name in sorted(signatures) for sentences in _BATCHES]


@pytest.fixture(scope="module")
def program(model, version, signatures, good_calls):
    """What `c_api.py` says to the calls that are refused, those of odd sentences, and the good ones, in this order."""
    asked = [(name, inputs) for name, inputs, _ in _REFUSED]
    asked += [("serving_default", {"sentences": np.array([odd], object)}) for odd, _ in _ODD]
    asked += [(name, inputs_of(model, name, sentences)) for name, sentences in good_calls]
    return run_program(version, [call(signatures[name], inputs) for name, inputs in asked])


def run_program(version, calls):
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
def answers(program):
    """(to the refused calls, to the odd ones, to the good ones) of each thread, the main one's first."""
    n, m = len(_REFUSED), len(_REFUSED) + len(_ODD)
    return [(every[:n], every[n:m], every[m:]) for every in (program["answers"], *program["threads"])]


def test_no_python_of_tensorflow_or_of_this_project_takes_part(program):
    packages = {module.split(".")[0] for module in program["modules"]}
    assert not packages & {"bert_flow_tf", "glow", "keras", "numpy", "tensorflow", "tensorflow_text", "tf_keras"}


def test_every_signature_agrees_with_the_model_for_no_one_and_many_sentences(model, signatures, good_calls, answers):
    assert {"serving_default", "similarity", "tokens", "pooled"} == signatures.keys()
    _, _, good = answers[0]
    for (name, sentences), answer in zip(good_calls, good, strict=True):
        assert_agrees(named(signatures[name], answer), expected_of(model, name, list(sentences)))


def test_threads_get_the_same_answers_at_once(signatures, good_calls, answers):
    (_, _, alone), *threads = answers
    assert len(threads) == _THREADS
    for _, _, good in threads:
        for (name, _), answer, expected in zip(good_calls, good, alone, strict=True):
            assert_agrees(named(signatures[name], answer), named(signatures[name], expected))


def test_what_does_not_fit_a_signature_is_an_invalid_argument_and_all_others_are_served(answers):
    for refused, _, _ in answers:
        for (name, _, text), answer in zip(_REFUSED, refused, strict=True):
            assert answer["code"] == _INVALID_ARGUMENT, name
            assert text in answer["message"]


def test_odd_sentences_are_embedded_as_what_is_left_of_them(model, signatures, answers):
    for _, odd, _ in answers:
        for (_, sentence), answer in zip(_ODD, odd, strict=True):
            found = named(signatures["serving_default"], answer)
            assert_agrees(found, expected_of(model, "serving_default", [sentence]))


def test_bfloat16_gives_like_directions_for_every_signature_from_threads_too(model, good_calls, tmp_path):
    version = model.export(tmp_path / "sts", dtype="bfloat16").path
    signatures = signatures_of(version)
    calls = [call(signatures[name], inputs_of(model, name, sentences)) for name, sentences in good_calls]
    found = run_program(version, calls)
    embed = tf.saved_model.load(str(version)).signatures["serving_default"]
    for answers in (found["answers"], *found["threads"]):
        for (name, sentences), answer in zip(good_calls, answers, strict=True):
            ((key, array),) = named(signatures[name], answer).items()
            expected = expected_of(model, name, list(sentences))[key]
            assert array.shape == expected.shape
            if name == "similarity":
                # Of its own embeddings: directions that differ from the model's by 0.99 leave a cosine much more room.
                own = embed(sentences=tf.constant(list(sentences), tf.string))["embedding"].numpy()
                units = own / np.linalg.norm(own, axis=1, keepdims=True)
                np.testing.assert_allclose(array, np.sum(units * units[::-1], axis=1), rtol=0, atol=0.002)
            else:
                norms = np.linalg.norm(array, axis=1) * np.linalg.norm(expected, axis=1)
                # As an export itself demands; and no float32 in disguise.
                assert (np.sum(array * expected, axis=1) / norms >= 0.99).all()
                assert not sentences or np.abs(array - expected).max() > 1e-4 * np.abs(expected).max()


@pytest.fixture(scope="module")
def saved_model_cli(version, tmp_path_factory):
    """(what TensorFlow's `saved_model_cli show --all` prints, folder of what its `run` gives for three sentences).

    One process runs both, with TensorFlow Text's operations, which the program has no flag for.
    """
    folder = tmp_path_factory.mktemp("saved_model_cli")
    show = ["show", "--dir", str(version), "--all"]
    run = ["run", "--dir", str(version), "--tag_set=serve", "--signature_def=serving_default"]
    run += [f"--input_exprs=sentences={list(_SENTENCES[:3])}", "--outdir", str(folder)]
    program = (
        "import contextlib, json, sys, tensorflow_text\n"
        "from tensorflow.python.tools import saved_model_cli\n"
        "for arguments in json.load(sys.stdin):\n"
        "    sys.argv[1:] = arguments\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        saved_model_cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([show, run]),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


def test_saved_model_cli_shows_every_signature(saved_model_cli, signatures):
    shown, _ = saved_model_cli
    for name, signature in signatures.items():
        assert f"signature_def['{name}']" in shown
        for key, info in (*signature.inputs.items(), *signature.outputs.items()):
            assert f"['{key}'] tensor_info" in shown
            assert f"name: {info.name}" in shown
    assert "could not be listed" not in shown


def test_saved_model_cli_runs_it(model, saved_model_cli):
    _, folder = saved_model_cli
    expected = expected_of(model, "serving_default", list(_SENTENCES[:3]))
    assert_agrees({"embedding": np.load(folder / "embedding.npy")}, expected)
