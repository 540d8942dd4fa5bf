"""What the tests of the client share."""

import concurrent.futures
import socket
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving import client as client_module
from tests.bert_flow_tf.serving.stand_in_server import toy_embedding

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


def connect(target, model="bert_flow", version=None, *, timeout=AMPLE):
    """The client of the stand-in's model, where no other is named."""
    return client_module.connect(target, model, version, timeout=timeout)


def served(stand_in, transport, port=0):
    """Context manager of the target of one of the stand-in's interfaces."""
    return getattr(stand_in, transport)(port)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def target_at(transport, port, host="127.0.0.1"):
    return f"{'grpc' if transport == 'grpc' else 'http'}://{host}:{port}"


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


def check_hot_swap(targets, swap, expected_by_version, model="bert_flow"):
    """Four threads ask all the time while `swap` brings version 2: no call fails, none mixes versions, 2 answers last.

    Args:
      targets: addresses of a server of version 1; the threads ask at each in turn.
      swap: function that returns when version 2 is in service.
      expected_by_version: dict of 1 and 2 -> embeddings of `SENTENCES`.
      model: its name at the server.
    """
    stop = threading.Event()

    def versions_seen(target):
        seen = []
        with connect(target, model) as client:
            while not stop.is_set():
                found = client.encode(SENTENCES, batch_size=3)
                close = [
                    version
                    for version, expected in expected_by_version.items()
                    if np.allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
                ]
                assert len(close) == 1, "an answer of neither version, or of both"
                seen += close
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(versions_seen, target) for target in targets * (4 // len(targets))]
        try:
            swap()
            time.sleep(0.3)
        finally:
            stop.set()
        for seen in (thread.result() for thread in threads):
            assert seen == sorted(seen), "an older version answered after a newer one"
            assert seen[-1] == 2
