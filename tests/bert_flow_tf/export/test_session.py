"""The export in a session, as a model server runs it."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

_SENTENCES = (
    "w1 w2 w3",
    "",
    "W4, w5!",
    "w5 w6 w7 w8 w9 w10 w11 w12 w13",
    "w1",
    "w2 w2",
    "Señor w3 東京 🙂",
)
_SIGNATURES = ("pooled", "serving_default", "similarity", "tokens")
# Sentences that a client may send by mistake, and what they are taken for: bytes that are not UTF-8
# (0xff, half of a surrogate pair) and control characters are dropped, and a megabyte is cut at the
# model's max_seq_length.
_ODD = (
    (b"w1 \xffw2", "w1 w2"),
    (b"w3 " * 350_000, "w3 " * 8),
    (b"\0\1", ""),
    (b"\xed\xa0\x80", ""),
)
# Each call has a signature, no, one or many sentences, and what they are taken for.
_ASKED = [
    (name, list(given), list(given))
    for name in _SIGNATURES
    for given in ((), _SENTENCES[:1], _SENTENCES)
]
_ASKED += [("serving_default", [given], [taken]) for given, taken in _ODD]


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
    ("serving_default", {"sentences": np.array([1], np.int32)}, "int32"),
    ("similarity", _pair(["w1", "w2"], ["w1"]), "sentence_b: found"),
    (
        "tokens",
        _tokens(ids=((2, 64, 3),)),
        "input_word_ids: found] [2] [to] [64] [expected 0 to 63",
    ),
    ("tokens", _tokens(ids=((-1, 5, 3),)), "input_word_ids: found] [-1]"),
    ("tokens", _tokens(mask=((1, 1),)), "input_mask: found shape] [1 2]"),
    ("tokens", _tokens(mask=((0, 0, 0),)), "input_mask: found a row of zeros"),
    ("tokens", _tokens(mask=((1, 2, 1),)), "input_mask: found] [1] [to] [2]"),
    ("tokens", _tokens(types=((0, 0, 0), (0, 0, 0))), "input_type_ids: found shape"),
    ("tokens", _tokens(types=((0, 2, 1),)), "input_type_ids: found] [0] [to] [2]"),
    ("tokens", _tokens(*[((1,) * 600,)] * 3), "input_word_ids: found] [600] [positions"),
)


def session_of(version):
    """Return a session and the signatures of a SavedModel."""
    with tf.Graph().as_default():
        session = tf.compat.v1.Session()
        return session, tf.compat.v1.saved_model.load(
            session, ["serve"], str(version)
        ).signature_def


def call_of(session, signature):
    """Return a function from inputs to an array or an error."""
    names = sorted(signature.inputs)
    (output,) = signature.outputs.values()
    # As in a server, nobody compares with the signature's shapes what is fed.
    options = config_pb2.CallableOptions(
        feed=[signature.inputs[key].name for key in names], fetch=[output.name]
    )
    call = session._make_callable_from_options(options)

    def answer(inputs):
        try:
            return call(*[inputs[key] for key in names])[0]
        except tf.errors.OpError as error:
            return error

    return answer


def inputs_of(model, name, sentences):
    """Return the inputs by which a signature embeds `sentences`."""
    if name == "tokens":
        tokens = model.tokenizer(tf.constant(sentences, tf.string), model.max_seq_length)
        return {key: value.numpy() for key, value in tokens.items()}
    return _pair(sentences, sentences[::-1]) if name == "similarity" else _texts(sentences)


def expected_of(model, name, sentences):
    """The array that the signature `name` must give for `inputs_of` it."""
    embed = model.encode_pooled if name == "pooled" else model.encode
    embedding = embed(sentences).reshape(len(sentences), model.embedding_size)
    return (
        model.similarity_pairwise(embedding, embedding[::-1]) if name == "similarity" else embedding
    )


def test_signatures_answer_as_the_model_or_name_the_input(sts_model, sts_version):
    session, signatures = session_of(sts_version)
    predicted = {
        name: one
        for name, one in signatures.items()
        if one.method_name == "tensorflow/serving/predict"
    }
    calls = {name: call_of(session, signature) for name, signature in predicted.items()}
    assert {name: (sorted(one.inputs), *one.outputs) for name, one in predicted.items()} == {
        "serving_default": (["sentences"], "embedding"),
        "pooled": (["sentences"], "embedding"),
        "tokens": (["input_mask", "input_type_ids", "input_word_ids"], "embedding"),
        "similarity": (["sentence_a", "sentence_b"], "cosine"),
    }
    for name, inputs, text in _REFUSED:
        error = calls[name](inputs)
        assert isinstance(error, tf.errors.InvalidArgumentError), name
        assert text in error.message
    for name, given, taken in _ASKED:
        answer, expected = (
            calls[name](inputs_of(sts_model, name, given)),
            expected_of(sts_model, name, taken),
        )
        assert answer.shape == expected.shape
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)
    definition = session.graph.as_graph_def()
    nodes = [
        *definition.node,
        *(node for function in definition.library.function for node in function.node_def),
    ]
    assert len(nodes) > 500
    assert {node.op for node in nodes}.isdisjoint({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
