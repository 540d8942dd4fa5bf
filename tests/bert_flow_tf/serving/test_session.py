"""The export in a session, as a model server runs it."""

import concurrent.futures
import threading

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

_SENTENCES = ("w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13", "w1", "w2 w2", "Señor w3 東京 🙂")
_THREADS = 8
_SIGNATURES = ("pooled", "serving_default", "similarity", "tokens")
# Each call has a signature and no, one or many sentences.
_GOOD = [(name, list(sentences)) for name in _SIGNATURES for sentences in ((), _SENTENCES[:1], _SENTENCES)]


def _tokens(ids=((2, 5, 3),), mask=((1, 1, 1),), types=((0, 0, 0),)):
    values = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}
    return {name: np.array(value, np.int32) for name, value in values.items()}


def _pair(a, b):
    return {"sentence_a": np.array(a, object), "sentence_b": np.array(b, object)}


def _texts(sentences):
    return {"sentences": np.array(sentences, object)}


# Signature, inputs that do not fit it, and what the error must name.
_REFUSED = (
    ("serving_default", _texts([["w1"]]), "sentences"),
    ("serving_default", _texts("w1"), "sentences"),
    ("serving_default", {"sentences": np.array([1], np.int32)}, "int32"),
    ("similarity", _pair(["w1", "w2"], ["w1"]), "sentence_b: found"),
    ("similarity", _pair("w1", ["w1"]), "sentence_a"),
    ("tokens", _tokens(ids=((2, 64, 3),)), "input_word_ids: found] [2] [to] [64] [expected 0 to 63"),
    ("tokens", _tokens(ids=((-1, 5, 3),)), "input_word_ids: found] [-1]"),
    ("tokens", _tokens(mask=(1, 1, 1)), "input_mask"),
    ("tokens", _tokens(mask=((1, 1),)), "input_mask: found shape] [1 2]"),
    ("tokens", _tokens(mask=((0, 0, 0),)), "input_mask: found a row of zeros"),
    ("tokens", _tokens(mask=((1, 2, 1),)), "input_mask: found] [1] [to] [2]"),
    ("tokens", _tokens(types=((0, 0, 0), (0, 0, 0))), "input_type_ids: found shape"),
    ("tokens", _tokens(types=((0, 2, 1),)), "input_type_ids: found] [0] [to] [2]"),
    ("tokens", _tokens(*[((1,) * 600,)] * 3), "input_word_ids: found] [600] [positions"),
)
# Sentences that a client may send by mistake, and what they are taken for: bytes that are not UTF-8 (0xff, half of
# a surrogate pair) and control characters are dropped, and a megabyte is cut at the model's max_seq_length.
_ODD = ((b"w1 \xffw2", "w1 w2"), (b"w3 " * 350_000, "w3 " * 8), (b"\0\1", ""), (b"\xed\xa0\x80", ""))


class Session:
    """A session of a version's SavedModel with the tag `serve`."""

    def __init__(self, version):
        self.graph = tf.Graph()
        with self.graph.as_default():
            session = tf.compat.v1.Session(graph=self.graph)
            loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(version))
        self.calls = {}
        for name, signature in loaded.signature_def.items():
            # The functions that a client may call.
            if signature.method_name == "tensorflow/serving/predict":
                names = sorted(signature.inputs)
                (output,) = signature.outputs.values()
                feed = [signature.inputs[key].name for key in names]
                # As in a server, nobody compares with the signature's shapes what is fed.
                options = config_pb2.CallableOptions(feed=feed, fetch=[output.name])
                self.calls[name] = names, session._make_callable_from_options(options)

    def answer(self, name, inputs):
        """The array that the signature gives for the inputs, or the error."""
        names, call = self.calls[name]
        try:
            (output,) = call(*[inputs[key] for key in names])
        except tf.errors.OpError as error:
            return error
        return output

    def answers(self, asked):
        """Return every thread's answers; each thread starts with another call."""
        together = threading.Barrier(_THREADS)

        def work(thread):
            together.wait()
            found = {i % len(asked): self.answer(*asked[i % len(asked)]) for i in range(thread, thread + len(asked))}
            return [found[i] for i in range(len(asked))]

        with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(work, range(_THREADS)))


def inputs_of(model, name, sentences):
    """Return the inputs by which a signature embeds `sentences`."""
    if name == "tokens":
        tokens = model.tokenizer(tf.constant(sentences, tf.string), model.max_seq_length)
        return {key: value.numpy() for key, value in tokens.items()}
    return _pair(sentences, sentences[::-1]) if name == "similarity" else _texts(sentences)


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


def test_signatures_answer_as_the_model_from_many_threads(sts_model, sts_version):
    session = Session(sts_version)
    assert set(_SIGNATURES) == session.calls.keys()
    refused = [(name, inputs) for name, inputs, _ in _REFUSED]
    odd = [("serving_default", _texts([sentence])) for sentence, _ in _ODD]
    good = [(name, inputs_of(sts_model, name, sentences)) for name, sentences in _GOOD]
    expected = [expected_of(sts_model, "serving_default", [sentence]) for _, sentence in _ODD]
    expected += [expected_of(sts_model, name, sentences) for name, sentences in _GOOD]
    for answers in session.answers([*refused, *odd, *good]):
        for (name, _, text), answer in zip(_REFUSED, answers, strict=False):
            assert isinstance(answer, tf.errors.InvalidArgumentError), name
            assert text in answer.message
        for array, answer in zip(expected, answers[len(refused) :], strict=True):
            assert answer.shape == array.shape
            np.testing.assert_allclose(answer, array, rtol=1e-5, atol=1e-5)
    definition = session.graph.as_graph_def()
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    assert len(nodes) > 500
    assert {node.op for node in nodes}.isdisjoint({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def test_bfloat16_gives_like_directions_for_every_signature(sts_model, bfloat16_export):
    asked = [(name, inputs_of(sts_model, name, sentences)) for name, sentences in _GOOD]
    expected = [expected_of(sts_model, name, sentences) for name, sentences in _GOOD]
    for answers in Session(bfloat16_export.path).answers(asked):
        # Ask for embeddings of no, one and many sentences.
        own = answers[3:6]
        for i, ((name, sentences), array, value) in enumerate(zip(_GOOD, answers, expected, strict=True)):
            assert array.shape == value.shape
            if name == "similarity":
                # Compare with its own embeddings, because cosines with the model's may differ by 0.01.
                np.testing.assert_allclose(array, cosines(own[i % 3], own[i % 3][::-1]), rtol=0, atol=0.002)
            else:
                # An export itself demands this; float32 would be closer.
                assert (cosines(array, value) >= 0.99).all()
                assert not sentences or np.abs(array - value).max() > 1e-4 * np.abs(value).max()
