"""`bert-flow analyze`: figures of the model's embeddings, plots, and mistakes."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from scipy import stats

from bert_flow_tf.api import BertFlow
from bert_flow_tf.evaluation.lexical import edit_distances
from tests.bert_flow_tf.commands.conftest import PAIRS
from tests.refusals import refused, succeeds

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def models(sts_run, cache):
    """The run with its flow, and its encoder without."""
    run = BertFlow.load(sts_run)
    return run, BertFlow.from_hub(run.source.bert_hub, sentence_embedding_type="avg-last-2", max_seq_length=8)


def results_of(folder, *plots):
    """Return a folder's results; it must hold these plots and nothing else."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(files) == sorted(
        ["results.json", *(f"{plot}.{ending}" for plot in plots for ending in ("png", "svg"))]
    )
    for plot in plots:
        assert files[f"{plot}.png"].startswith(b"\x89PNG\r\n")
        assert b"</svg>" in files[f"{plot}.svg"]
    return json.loads(files["results.json"])


def check_made_of(written, analysis, run, checkpoint):
    """Check the record's command, libraries and model."""
    made_by, model = written["made_by"], written["model"]
    assert (written["kind"], made_by["command"]) == (analysis, f"bert-flow analyze {analysis}")
    assert "tensorflow" in made_by["libraries"]
    assert model["encoder"]["fingerprint"] == run.source.fingerprint
    assert model["flow"]["config"] == run.flow.config.to_dict()
    assert (model["pooling"], model["max_seq_length"], model["checkpoint"]) == ("avg-last-2", 8, str(checkpoint))


def test_lexical_correlates_distance_with_gold_bert_and_flow(sts_run, models, small_glue_dir, small_splits, tmp_path):
    out = tmp_path / "new" / "lexical"
    printed = succeeds("analyze", "lexical", "--model", sts_run, "--glue_dir", small_glue_dir, "--out", out)
    written = results_of(out, "lexical")
    dev = small_splits["dev"]
    distances = edit_distances(dev.sentences_a, dev.sentences_b)
    run, plain = models
    # Pairs of like sentences are ties.
    of_bert, of_flow = (model.similarity_pairwise(dev.sentences_a, dev.sentences_b).round(6) for model in (plain, run))
    expected = {"Gold similarity": dev.labels, "BERT-induced similarity": of_bert, "Flow-induced similarity": of_flow}
    for name, values in expected.items():
        row = written["rows"][name]
        assert row["edit distance"] == pytest.approx(100 * stats.spearmanr(values, distances).statistic, abs=0.01)
        assert row["gold"] == pytest.approx(100 * stats.spearmanr(values, dev.labels).statistic, abs=0.01)
        assert f"{row['edit distance']:.2f}" in printed
    assert (written["pairs"], written["task"], written["split"]) == (PAIRS["dev"], "sts-b", "dev")
    check_made_of(written, "lexical", run, sts_run / "model.ckpt-3")


def test_lexical_of_an_encoder_has_no_row_of_a_flow(tiny_encoder_dir, small_glue_dir, tmp_path):
    model = ("--bert_hub", tiny_encoder_dir, "--max_seq_length", 8)
    flags = ("--glue_dir", small_glue_dir, "--split", "test", "--out", tmp_path / "out")
    succeeds("analyze", "lexical", *model, *flags)
    written = results_of(tmp_path / "out", "lexical")
    assert list(written["rows"]) == ["Gold similarity", "BERT-induced similarity"]
    assert (written["model"]["flow"], written["pairs"]) == (None, PAIRS["test"])


def test_isotropy_is_measured_with_the_flow_and_without(sts_run, models, small_glue_dir, small_splits, tmp_path):
    out = tmp_path / "isotropy"
    flags = ("--glue_dir", small_glue_dir, "--split", "all", "--out", out)
    printed = succeeds("analyze", "isotropy", "--model", sts_run, *flags)
    written = results_of(out, "spectrum")
    sentences = sorted({s for part in small_splits.values() for s in part.sentences_a + part.sentences_b})
    assert written["sentences"] == len(sentences)
    run, plain = models
    for name, model in {"without flow": plain, "with flow": run}.items():
        x = model.encode(sentences).astype(np.float64)
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        mean = (unit @ unit.T)[~np.eye(len(x), dtype=bool)].mean()
        assert written["measures"][name]["mean_cosine"] == pytest.approx(mean, abs=1e-4)
        spectrum = np.linalg.svd(x, compute_uv=False) / np.sqrt(len(x))
        np.testing.assert_allclose(written["measures"][name]["spectrum"], spectrum, rtol=1e-3, atol=1e-5)
    assert written["bits_per_dim"]["flow"] == pytest.approx(run.bits_per_dim(sentences).mean(), abs=1e-4)
    assert f"{written['bits_per_dim']['flow']:.4f}" in printed and "standard normal" in printed
    check_made_of(written, "isotropy", run, sts_run / "model.ckpt-3")


def test_words_are_binned_by_frequency_with_their_norms(small_encoder_dir, small_hugging_face_dir, tmp_path):
    out = tmp_path / "words"
    printed = succeeds("analyze", "words", "--bert_hub", small_encoder_dir, "--out", out)
    written = results_of(out, "words")
    assert (written["pieces"], written["ranked_words"], "model" in written) == (11, 4, False)
    tensors = safetensors.numpy.load_file(small_hugging_face_dir / "model.safetensors")
    rows = tensors["bert.embeddings.word_embeddings.weight"]
    # The, the, cat, sat
    words = rows[[5, 6, 7, 9]]
    first, *others = written["bins"]
    assert first["words"] == 4
    assert first["mean_l2_norm"] == pytest.approx(np.linalg.norm(words, axis=1).mean(), rel=1e-5)
    distances = np.sort(np.linalg.norm(words[:, None] - rows[None], axis=2), axis=1)[:, 1:]
    for k in (3, 5, 7):
        assert first["mean_knn_l2_distance"][str(k)] == pytest.approx(distances[:, :k].mean(), rel=1e-4)
    assert [(one["words"], one["mean_l2_norm"]) for one in others] == [(0, None)] * 3
    assert "11 word pieces, 4 of them words with a frequency rank" in printed


def test_without_english_words_or_unlike_pairs_is_one_line(tiny_encoder_dir, small_glue_dir, tmp_path):
    flags = ("--bert_hub", tiny_encoder_dir, "--out", tmp_path / "out")
    assert refused("analyze", "words", *flags, unchanged=tmp_path).startswith("vocabulary: none of its 64 pieces")
    stsb = shutil.copytree(small_glue_dir, tmp_path / "glue") / "STS-B"
    rows = [line.split("\t") for line in (stsb / "dev.tsv").read_text().splitlines()]
    same = [rows[0], *([*row[:8], row[7], row[9]] for row in rows[1:])]
    (stsb / "dev.tsv").write_text("".join("\t".join(row) + "\n" for row in same))
    flags = (*flags, "--max_seq_length", 8, "--glue_dir", tmp_path / "glue")
    line = refused("analyze", "lexical", *flags, unchanged=tmp_path)
    assert line.startswith(f"sts-b, dev, without flow: found {PAIRS['dev']} cosines that are all 1 up to rounding")
