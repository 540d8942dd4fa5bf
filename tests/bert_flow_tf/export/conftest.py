"""Models to export, and an export."""

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
    from bert_flow_tf.encoder.text_encoder import TextEncoder
    from bert_flow_tf.model.embedder import record_of_own

    model = BertFlow.from_hub(golden_dir / "transformers" / "sentence_transformer")

    def make(pooling, config, low_dim=-1):
        network = model.encoder.network.with_pooling(pooling)
        encoder = TextEncoder(model.source, network, max_seq_length=model.max_seq_length)
        maps = []
        if config is not None:
            maps.append(Glow(config, encoder.embedding_size, seed=0))
            perturb(maps[0].trainable_variables, seed=1)
        return BertFlow(
            encoder, maps, origin=model.origin, learned=record_of_own(maps), low_dim=low_dim
        )

    return make
