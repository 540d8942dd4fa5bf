"""A stand-in for a model server, a client of it by each transport, and exports."""

import pytest

from tests.bert_flow_tf.serving.client_checks import TRANSPORTS, connect, served
from tests.bert_flow_tf.serving.stand_in_server import StandIn


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def stand_in():
    return StandIn()


@pytest.fixture
def target(stand_in, transport):
    with served(stand_in, transport) as target:
        yield target


@pytest.fixture
def client(target):
    with connect(target) as client:
        yield client


@pytest.fixture(scope="session")
def sts_model(sts_run):
    """`BertFlow` of the small run."""
    from bert_flow_tf.api import BertFlow

    return BertFlow.load(sts_run)


@pytest.fixture(scope="session")
def bfloat16_export(sts_model, tmp_path_factory):
    """`Exported` of that model in bfloat16."""
    return sts_model.export(tmp_path_factory.mktemp("bfloat16") / "sts", dtype="bfloat16")
