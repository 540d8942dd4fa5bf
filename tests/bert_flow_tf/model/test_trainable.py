"""An own training loop changes the model that it came from."""

import pathlib
import runpy

import numpy as np
import pytest

from bert_flow_tf import BertFlow
from glow import Glow, GlowConfig
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error

EXAMPLE = pathlib.Path(__file__).parents[3] / "examples" / "own_loop.py"
TEXTS = [f"w{i} w{j}" for i in range(12) for j in range(10)]
SMALL_FLOW = GlowConfig(n_levels=2, depth=1, coupling_width=8)
train = runpy.run_path(str(EXAMPLE))["train"]


@pytest.fixture
def model(tiny_encoder_dir):
    made = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    made.flow = Glow(SMALL_FLOW, made.embedding_size, seed=0)
    return made


def test_the_example_lowers_the_loss_and_encode_save_and_pretrained_see_it(model, tmp_path):
    before = model.encode(TEXTS)
    pooled = model.encode_pooled(TEXTS)
    losses = train(model, TEXTS, steps=30, learning_rate=5e-3)
    assert np.mean(losses[-10:]) < np.mean(losses[:10])
    found = model.encode(TEXTS)
    assert np.abs(found - before).max() > 0.1
    assert np.abs(model.encode_pooled(TEXTS) - pooled).max() > 0.01
    network = model.trainable()
    np.testing.assert_allclose(network(TEXTS)["embeddings"], found, rtol=0, atol=1e-4)
    loss = network(TEXTS)["bits_per_dim"]
    np.testing.assert_allclose(loss, model.bits_per_dim(TEXTS), rtol=0, atol=1e-4)
    again = BertFlow.from_pretrained(model.save(tmp_path / "saved"))
    # A loaded flow is folded, which changes the order of its operations.
    np.testing.assert_allclose(again.encode(TEXTS), found, rtol=0, atol=1e-5)
    assert again.record.encoder.fine_tuning is not None
    assert again.record.flow.verdict is None


def test_without_the_encoder_only_the_flow_is_trained(model):
    pooled = model.encode_pooled(TEXTS)
    network = model.trainable()
    assert {id(one) for one in network.trainable_variables} == {
        id(one) for one in model.flow.trainable_variables
    }
    for variable in network.trainable_variables:
        variable.assign_add(0.1 * np.ones(variable.shape))
    np.testing.assert_array_equal(model.encode_pooled(TEXTS), pooled)
    np.testing.assert_allclose(network(TEXTS)["embeddings"], model.encode(TEXTS), atol=1e-4)


def test_a_flow_behind_a_whitening_keeps_its_whitening(tiny_encoder_dir, tmp_path):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    config = small_runs.small_flow_file(tmp_path)
    model.fit(
        TEXTS, method="soft-whitening-0.1+flow", flow_model_config=config, batch_size=16, epochs=1
    )
    whitening = model.flow.variables_by_path["0/matrix"].numpy()
    train(model, TEXTS, steps=3)
    np.testing.assert_array_equal(model.flow.variables_by_path["0/matrix"], whitening)


def test_a_model_without_a_flow_is_named(tiny_encoder_dir):
    with user_error("trainable: found a model without a flow"):
        BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).trainable()


def test_the_example_runs(tiny_encoder_dir, tmp_path, monkeypatch, capsys):
    # A small encoder and flow, because only tracing large ones takes long.
    tiny = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    monkeypatch.setattr(BertFlow, "from_hub", lambda name, **options: tiny)
    monkeypatch.setattr("glow.GlowConfig", lambda: SMALL_FLOW)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "bits per dimension; saved: own_loop" in capsys.readouterr().out
    assert BertFlow.from_pretrained(tmp_path / "own_loop").record.flow is not None
