"""A stand-in for a model server, and a client of it by each transport."""

import pytest

from tests.bert_flow_tf.serving.client_checks import AMPLE, TRANSPORTS, connect, served
from tests.bert_flow_tf.serving.stand_in_server import StandIn


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def stand_in():
    return StandIn()


@pytest.fixture
def client(stand_in, transport):
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        yield client
