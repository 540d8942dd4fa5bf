"""A model of a small run, and an export of it."""

import pytest


@pytest.fixture(scope="session")
def sts_model(sts_run):
    """`BertFlow` of the small run."""
    from bert_flow_tf.api import BertFlow

    return BertFlow.load(sts_run)


@pytest.fixture(scope="session")
def bfloat16_export(sts_model, tmp_path_factory):
    """`Exported` of that model in bfloat16."""
    return sts_model.export(tmp_path_factory.mktemp("bfloat16") / "sts", dtype="bfloat16")
