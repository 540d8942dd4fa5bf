"""The export as a model server runs it: a session of its graph, fed by the names of tensors, without any Python.

The answers are compared with the model's own.
"""

import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

_SENTENCES = ("w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "w1", "w2 w2", "Señor w3 東京 🙂")
_THREADS = 8
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
    ("serving_default", {"sentences": np.array([1], np.int32)}, "actual int32 vs. expect string"),
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
_ODD = ((b"w1 \xffw2", "w1 w2"), (b"w3 " * 350_000, "w3 " * 8), (b"\0\1", ""), (b"\xed\xa0\x80", ""))


class Session:
    """A session of the SavedModel in a version's folder, loaded with the tag `serve`."""

    def __init__(self, version):
        self.graph = tf.Graph()
        with self.graph.as_default():
            session = tf.compat.v1.Session(graph=self.graph)
            loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(version))
        self._calls = {}
        for name, signature in loaded.signature_def.items():
            # The functions that a client may call.
            if signature.method_name == "tensorflow/serving/predict":
                names = sorted(signature.inputs)
                (output,) = signature.outputs.values()
                feed = [signature.inputs[key].name for key in names]
                # As in a server, nobody compares with the signature's shapes what is fed.
                options = config_pb2.CallableOptions(feed=feed, fetch=[output.name])
                self._calls[name] = names, session._make_callable_from_options(options)

    @property
    def signatures(self):
        return self._calls.keys()

    def answer(self, name, inputs):
        """The array that the signature gives for the inputs, or the error."""
        names, call = self._calls[name]
        try:
            (output,) = call(*[inputs[key] for key in names])
        except tf.errors.OpError as error:
            return error
        return output

    def answers(self, asked):
        """For every thread the answers to all calls; each begins with another, so that different calls meet."""
        together = threading.Barrier(_THREADS)

        def work(thread):
            together.wait()
            found = {i % len(asked): self.answer(*asked[i % len(asked)]) for i in range(thread, thread + len(asked))}
            return [found[i] for i in range(len(asked))]

        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(work, range(_THREADS)))


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


@pytest.fixture(scope="module")
def good_calls(sts_model):
    return [(name, inputs_of(sts_model, name, sentences)) for name, sentences in _GOOD]


@pytest.fixture(scope="module")
def session(sts_version):
    return Session(sts_version)


@pytest.fixture(scope="module")
def answers(session, good_calls):
    """(to the refused calls, to those of odd sentences, to the good ones) of each thread."""
    refused = [(name, inputs) for name, inputs, _ in _REFUSED]
    odd = [("serving_default", {"sentences": np.array([sentence], object)}) for sentence, _ in _ODD]
    n, m = len(refused), len(refused) + len(odd)
    return [(every[:n], every[n:m], every[m:]) for every in session.answers([*refused, *odd, *good_calls])]


def test_no_python_takes_part(session):
    definition = session.graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert len(nodes) > 500
    assert {node.op for node in nodes}.isdisjoint({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def test_every_signature_agrees_with_the_model_for_no_one_and_many_sentences(sts_model, session, answers):
    assert set(_SIGNATURES) == session.signatures
    expected = [expected_of(sts_model, name, list(sentences)) for name, sentences in _GOOD]
    for _, _, good in answers:
        for found, array in zip(good, expected, strict=True):
            assert found.shape == array.shape
            np.testing.assert_allclose(found, array, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_a_signature_is_an_invalid_argument_and_all_others_are_served(answers):
    for refused, _, _ in answers:
        for (name, _, text), answer in zip(_REFUSED, refused, strict=True):
            assert isinstance(answer, tf.errors.InvalidArgumentError), name
            assert text in answer.message


def test_odd_sentences_are_embedded_as_what_is_left_of_them(sts_model, answers):
    for _, odd, _ in answers:
        for (_, sentence), found in zip(_ODD, odd, strict=True):
            np.testing.assert_allclose(found, sts_model.encode([sentence]), rtol=1e-5, atol=1e-5)


def test_bfloat16_gives_like_directions_for_every_signature_from_threads_too(sts_model, good_calls, bfloat16_export):
    found = Session(bfloat16_export.path).answers(good_calls)
    embed = tf.saved_model.load(str(bfloat16_export.path)).signatures["serving_default"]
    for answers in found:
        for (name, sentences), array in zip(_GOOD, answers, strict=True):
            expected = expected_of(sts_model, name, list(sentences))
            assert array.shape == expected.shape
            if name == "similarity":
                # Of its own embeddings: directions that differ from the model's by 0.99 leave a cosine much more room.
                own = embed(sentences=tf.constant(list(sentences), tf.string))["embedding"].numpy()
                np.testing.assert_allclose(array, cosines(own, own[::-1]), rtol=0, atol=0.002)
            else:
                # As an export itself demands; and no float32 in disguise.
                assert (cosines(array, expected) >= 0.99).all()
                assert not sentences or np.abs(array - expected).max() > 1e-4 * np.abs(expected).max()
