"""What the tests of the client share."""

import socket

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving import client as client_module
from bert_flow_tf.serving.client_errors import ServingError
from tests.bert_flow_tf.serving.stand_in_server import StandIn, toy_embedding

SENTENCES = [
    "A small boat crosses the lake.",
    "",
    "Señora Müller ordered a crème brûlée",
    "東京は首都",
    'quotes " and \\ and a tab\t, a line\nbreak',
    "an emoji 🙂 and one of several code points 👩‍👩‍👧",
    "a NUL \0 within",
]
TRANSPORTS = ["grpc", "rest"]
# Enough for a busy machine; where a deadline is to pass, the tests take one of their own.
AMPLE = 60.0


def connect(target, model="bert_flow", version=None, **options):
    """The client of the stand-in's model, where no other is named."""
    return client_module.connect(target, model, version, **options)


def served(stand_in, transport, port=0):
    """Context manager of the target of one of the stand-in's interfaces."""
    return getattr(stand_in, transport)(port)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def target_at(transport, port):
    return f"{'grpc' if transport == 'grpc' else 'http'}://127.0.0.1:{port}"


def message_of(kind, call, *arguments, **options):
    """The one line of the error, of just this kind, that the call raises."""
    with pytest.raises(UserError) as raised:
        call(*arguments, **options)
    assert type(raised.value) is kind, raised.value
    message = str(raised.value)
    assert "\n" not in message
    return message


def expected_embeddings(sentences, version=1):
    return np.array([toy_embedding(sentence, version) for sentence in sentences])


def refused_answer(transport, outputs, call=lambda client: client.encode(["one", "two"])):
    """The line with which the client refuses such an answer of the server's."""
    stand_in = StandIn(lambda request, version: outputs)
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        message = message_of(ServingError, call, client)
    assert message.startswith(f"{target}")
    return message
