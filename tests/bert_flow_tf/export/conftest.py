"""Models to export, and an export."""

import copy

import pytest

from glow.flow import Glow
from tests.glow.bijector_checks import perturb


@pytest.fixture(scope="session")
def sts_model(sts_run):
    """`BertFlow` of the small run."""
    from bert_flow_tf.api import BertFlow

    return BertFlow.load(sts_run)


@pytest.fixture(scope="session")
def variant(golden_dir):
    """A function that makes a `BertFlow` with a pooling and a flow."""
    from bert_flow_tf.api import BertFlow

    model = BertFlow.from_hub(golden_dir / "transformers" / "sentence_transformer")

    def make(pooling, config, low_dim=-1):
        made = copy.copy(model)
        made.sentence_embedding_type = pooling
        made.encoder = made.cast_encoder = model.encoder.with_pooling(pooling)
        made.low_dim = low_dim
        if config is not None:
            made.flow = Glow(config, made.encoder.embedding_size, seed=0)
            perturb(made.flow.trainable_variables, seed=1)
        return copy.copy(made)

    return make
