"""`bert-flow isotropy`: figures of the model's embeddings."""

import json

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.evaluation.isotropy import measure_isotropy
from glow.config import GlowConfig
from glow.flow import Glow
from tests.refusals import succeeds


@pytest.fixture
def models(sts_run):
    """The run with its flow, and its encoder without."""
    run = BertFlow.load(sts_run)
    return run, BertFlow.from_hub(
        run.source.bert_hub, sentence_embedding_type="avg-last-2", max_seq_length=8
    )


def test_isotropy_is_measured_with_the_flow_and_without(
    sts_run, models, small_glue_dir, small_splits, tmp_path
):
    out = tmp_path / "isotropy.json"
    flags = ("--glue_dir", small_glue_dir, "--split", "all", "--out", out)
    printed = succeeds("isotropy", "--model", sts_run, *flags)
    written = json.loads(out.read_text())
    sentences = sorted(
        {s for part in small_splits.values() for s in part.sentences_a + part.sentences_b}
    )
    assert written["sentences"] == len(sentences)
    for name, model in zip(("with flow", "without flow"), models, strict=True):
        expected = measure_isotropy(model.encode(sentences))
        assert written["measures"][name]["mean_cosine"] == pytest.approx(
            expected.mean_cosine, abs=1e-4
        )
        np.testing.assert_allclose(
            written["measures"][name]["spectrum"], expected.spectrum, rtol=1e-3, atol=1e-5
        )
    run, _ = models
    assert written["bits_per_dim"]["flow"] == pytest.approx(
        run.bits_per_dim(sentences).mean(), abs=1e-4
    )
    assert f"{written['bits_per_dim']['flow']:.4f}" in printed and "standard normal" in printed
    assert (written["kind"], written["made_by"]["command"]) == ("isotropy", "bert-flow isotropy")
    assert "tensorflow" in written["made_by"]["libraries"]
    config = json.loads((sts_run / "config.json").read_text())
    assert written["model"] == config["model"] | {"checkpoint": str(sts_run / "model.ckpt-3")}


def test_averaged_channels_are_measured_on_both_sides(models, small_glue_dir, tmp_path):
    _, plain = models
    run = BertFlow.from_hub(plain.source.bert_hub, max_seq_length=8, low_dim=4)
    run.flow = Glow(GlowConfig(n_levels=2, depth=1, coupling_width=4), 32, seed=0)
    saved, out = run.save(tmp_path / "saved"), tmp_path / "isotropy.json"
    succeeds("isotropy", "--model", saved, "--glue_dir", small_glue_dir, "--out", out)
    written = json.loads(out.read_text())
    sides = [*written["measures"].values(), written["reference"]]
    assert [len(side["spectrum"]) for side in sides] == [4, 4, 4]
