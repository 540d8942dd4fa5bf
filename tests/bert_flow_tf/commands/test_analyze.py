"""`bert-flow analyze`: figures of the model's embeddings, plots, and mistakes."""

import json

import numpy as np
import pytest
import safetensors.numpy
from scipy import stats

from bert_flow_tf.api import BertFlow
from bert_flow_tf.evaluation.isotropy import measure_isotropy
from bert_flow_tf.evaluation.lexical import edit_distances
from tests.bert_flow_tf.commands.conftest import PAIRS
from tests.refusals import succeeds


@pytest.fixture
def models(sts_run):
    """The run with its flow, and its encoder without."""
    run = BertFlow.load(sts_run)
    return run, BertFlow.from_hub(run.source.bert_hub, sentence_embedding_type="avg-last-2", max_seq_length=8)


def results_of(folder, plot):
    """Return a folder's results; it must hold this plot and nothing else."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(files) == sorted(["results.json", f"{plot}.png", f"{plot}.svg"])
    assert files[f"{plot}.png"].startswith(b"\x89PNG\r\n") and b"</svg>" in files[f"{plot}.svg"]
    return json.loads(files["results.json"])


def test_lexical_correlates_distance_with_gold_bert_and_flow(sts_run, models, small_glue_dir, small_splits, tmp_path):
    out, flags = tmp_path / "new" / "lexical", ("--glue_dir", small_glue_dir, "--out")
    printed = succeeds("analyze", "lexical", "--model", sts_run, *flags, out)
    written, dev = results_of(out, "lexical"), small_splits["dev"]
    distances = edit_distances(dev.sentences_a, dev.sentences_b)
    # Pairs of like sentences are ties.
    of_flow, of_bert = (model.similarity_pairwise(dev.sentences_a, dev.sentences_b).round(6) for model in models)
    expected = {"Gold similarity": dev.labels, "BERT-induced similarity": of_bert, "Flow-induced similarity": of_flow}
    for name, values in expected.items():
        row = written["all_pairs"]["rows"][name]
        assert row["edit distance"] == pytest.approx(100 * stats.spearmanr(values, distances).statistic, abs=0.01)
        assert row["gold"] == pytest.approx(100 * stats.spearmanr(values, dev.labels).statistic, abs=0.01)
        assert f"{row['edit distance']:.2f}" in printed
    assert (written["all_pairs"]["pairs"], written["task"], written["split"]) == (PAIRS["dev"], "sts-b", "dev")
    assert written["close_pairs"]["pairs"] == np.sum(distances <= 4)
    model = ("--bert_hub", models[0].source.bert_hub, "--max_seq_length", 8, "--split", "test")
    succeeds("analyze", "lexical", *model, *flags, tmp_path / "plain")
    written = results_of(tmp_path / "plain", "lexical")["all_pairs"]
    assert (list(written["rows"]), written["pairs"]) == ([*expected][:2], PAIRS["test"])


def test_isotropy_is_measured_with_the_flow_and_without(sts_run, models, small_glue_dir, small_splits, tmp_path):
    out = tmp_path / "isotropy"
    flags = ("--glue_dir", small_glue_dir, "--split", "all", "--out", out)
    printed = succeeds("analyze", "isotropy", "--model", sts_run, *flags)
    written = results_of(out, "spectrum")
    sentences = sorted({s for part in small_splits.values() for s in part.sentences_a + part.sentences_b})
    assert written["sentences"] == len(sentences)
    for name, model in zip(("with flow", "without flow"), models, strict=True):
        expected = measure_isotropy(model.encode(sentences))
        assert written["measures"][name]["mean_cosine"] == pytest.approx(expected.mean_cosine, abs=1e-4)
        np.testing.assert_allclose(written["measures"][name]["spectrum"], expected.spectrum, rtol=1e-3, atol=1e-5)
    run, _ = models
    assert written["bits_per_dim"]["flow"] == pytest.approx(run.bits_per_dim(sentences).mean(), abs=1e-4)
    assert f"{written['bits_per_dim']['flow']:.4f}" in printed and "standard normal" in printed
    assert (written["kind"], written["made_by"]["command"]) == ("isotropy", "bert-flow analyze isotropy")
    assert "tensorflow" in written["made_by"]["libraries"]
    config = json.loads((sts_run / "config.json").read_text())
    assert written["model"] == config["model"] | {"checkpoint": str(sts_run / "model.ckpt-3")}


def test_words_are_binned_by_frequency_with_their_norms(small_encoder_dir, small_hugging_face_dir, tmp_path):
    printed = succeeds("analyze", "words", "--bert_hub", small_encoder_dir, "--out", tmp_path / "words")
    assert "11 word pieces; 4 are words with a frequency rank" in printed
    written = results_of(tmp_path / "words", "words")
    tensors = safetensors.numpy.load_file(small_hugging_face_dir / "model.safetensors")
    rows = tensors["bert.embeddings.word_embeddings.weight"]
    # The, the, cat, sat
    words = rows[[5, 6, 7, 9]]
    first, *others = written["bins"]
    assert first["words"] == 4
    assert first["mean_l2_norm"] == pytest.approx(np.linalg.norm(words, axis=1).mean(), rel=1e-5)
    distances = np.sort(np.linalg.norm(words[:, None] - rows[None], axis=2), axis=1)[:, 1:]
    assert first["mean_knn_l2_distance"]["5"] == pytest.approx(distances[:, :5].mean(), rel=1e-4)
    assert [(one["words"], one["mean_l2_norm"]) for one in others] == [(0, None)] * 3
