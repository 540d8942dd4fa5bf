"""`bert-flow isotropy`: figures of the model's embeddings."""

import json

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.vectors.isotropy import alignment, measure_isotropy
from glow.config import GlowConfig
from glow.flow import Glow
from tests.refusals import refused, succeeds


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
    labelled = [small_splits[name] for name in ("train", "dev", "test")]
    pairs = [
        (a, b)
        for part in labelled
        for a, b, score in zip(part.sentences_a, part.sentences_b, part.labels, strict=True)
        if score > 4
    ]
    assert written["positive_pairs"] == len(pairs) > 5
    first, second = (run.encode(list(side)) for side in zip(*pairs, strict=True))
    assert written["alignment"]["with flow"] == pytest.approx(alignment(first, second), abs=1e-4)
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


def test_a_calibration_of_fewer_channels_is_beside_draws_of_its_width(models, tmp_path):
    _, plain = models
    model = BertFlow.from_hub(plain.source.bert_hub, max_seq_length=8)
    texts = [f"w{i} w{j}" for i in range(12) for j in range(i)]
    model.fit(texts, method="whitening-6").save(tmp_path / "saved")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    given = ("--model", tmp_path / "saved", "--input", tmp_path / "texts.txt")
    printed = succeeds("isotropy", *given, "--out", tmp_path / "isotropy.json")
    assert "channels: 32 without flow, 6 with flow, 6 standard normal" in printed
    written = json.loads((tmp_path / "isotropy.json").read_text())
    assert written["reference"]["channels"] == 6


def test_sentences_of_ones_own_are_measured(models, tmp_path):
    _, plain = models
    model = ("isotropy", "--bert_hub", plain.source.bert_hub, "--max_seq_length", 8)
    rows = tmp_path / "rows.csv"
    rows.write_text("id,text\n1,w1 w2\n2,w3\n3,w1 w2\n4,\n5,w4 w5 w6\n")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("sentence1\tsentence2\tscore\nw1 w2\tw7\t1\nw8\tw9\t0\n")
    out = tmp_path / "isotropy.json"
    own = ("--input", rows, "--column", "text", "--pairs", pairs)
    printed = succeeds(*model, *own, "--out", out, "--format", "markdown")
    assert printed.startswith("| measure | without flow | standard normal |\n")
    assert "| alignment, positive pairs: 1 | " in printed
    written = json.loads(out.read_text())
    assert (written["sentences"], written["task"]) == (3, None)
    model_of_avg = BertFlow.from_hub(plain.source.bert_hub, max_seq_length=8)
    expected = measure_isotropy(model_of_avg.encode(["w1 w2", "w3", "w4 w5 w6"]))
    found = written["measures"]["without flow"]
    assert found["uniformity"] == pytest.approx(expected.uniformity, abs=1e-4)
    assert "4 different sentences of --pairs" in succeeds(*model, "--pairs", pairs)
    assert "--input: found it beside --glue_dir" in refused(*model, *own[:4], "--glue_dir", ".")
    assert "found none" in refused(*model)
    assert "score of 80" in _refused_score(model, pairs)


def _refused_score(model, pairs):
    pairs.write_text("sentence1\tsentence2\tscore\nw1\tw2\t80\nw8\tw9\t0\n")
    return refused(*model, "--pairs", pairs)
