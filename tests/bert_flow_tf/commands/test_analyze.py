"""`bert-flow analyze`: figures of the model's own embeddings, plots beside them, and mistakes in one line."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from scipy import stats

from bert_flow_tf.evaluation.lexical import edit_distances
from tests.bert_flow_tf.commands.conftest import PAIRS
from tests.refusals import files_below, refused, succeeds

PNG = b"\x89PNG\r\n"


@pytest.fixture(autouse=True)
def cache(tiny_trio, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))


@pytest.fixture(scope="module")
def models(sts_run, tiny_trio):
    """The run with its flow, and its encoder without."""
    from bert_flow_tf.api import BertFlow

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
        run = BertFlow.load(sts_run)
    return run, BertFlow.from_hub(run.source.bert_hub, sentence_embedding_type="avg-last-2", max_seq_length=8)


def results_of(folder, *plots):
    """What the folder's results.json holds; it must be there with these plots and nothing else."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sorted(files) == sorted(
        ["results.json", *(f"{plot}.{ending}" for plot in plots for ending in ("png", "svg"))]
    )
    for plot in plots:
        assert files[f"{plot}.png"].startswith(PNG)
        assert b"</svg>" in files[f"{plot}.svg"]
    return json.loads(files["results.json"])


def check_made_of(written, analysis, run, checkpoint):
    """The record names the command, its libraries and the run's model."""
    made_by, model = written["made_by"], written["model"]
    assert (written["kind"], made_by["command"]) == (analysis, f"bert-flow analyze {analysis}")
    assert "tensorflow" in made_by["libraries"]
    assert model["encoder"]["fingerprint"] == run.source.fingerprint
    assert model["flow"]["config"] == run.flow.config.to_dict()
    assert (model["pooling"], model["max_seq_length"], model["checkpoint"]) == ("avg-last-2", 8, str(checkpoint))


def cosines(model, pairs):
    a, b = (model.encode(sentences).astype(np.float64) for sentences in (pairs.sentences_a, pairs.sentences_b))
    values = np.sum(a * b, axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    # Pairs of like sentences are ties.
    return values.round(12)


def test_lexical_correlates_distance_with_gold_bert_and_flow(sts_run, models, small_glue_dir, small_splits, tmp_path):
    out = tmp_path / "new" / "lexical"
    printed = succeeds("analyze", "lexical", "--model", sts_run, "--glue_dir", small_glue_dir, "--out", out)
    written = results_of(out, "lexical")
    dev = small_splits["dev"]
    distances = edit_distances(dev.sentences_a, dev.sentences_b)
    run, plain = models
    for name, values in {
        "Gold similarity": dev.labels,
        "BERT-induced similarity": cosines(plain, dev),
        "Flow-induced similarity": cosines(run, dev),
    }.items():
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
    assert written["model"]["flow"] is None


def test_isotropy_is_measured_before_and_after_the_flow_of_different_sentences(
    sts_run, models, small_glue_dir, small_splits, tmp_path
):
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
    assert f"{written['bits_per_dim']['flow']:.4f}" in printed
    assert [line for line in printed.splitlines() if "standard normal" in line]
    check_made_of(written, "isotropy", run, sts_run / "model.ckpt-3")


def test_words_are_binned_by_frequency_and_their_norms_are_the_encoders(
    small_encoder_dir, small_hugging_face_dir, tmp_path
):
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


def test_an_encoder_without_english_words_is_refused(tiny_encoder_dir, tmp_path):
    line = refused("analyze", "words", "--bert_hub", tiny_encoder_dir, "--out", tmp_path / "words")
    assert line.startswith("vocabulary: none of its 64 pieces is a word with a known frequency")
    assert files_below(tmp_path) == {}


@pytest.fixture
def line_of(small_glue_dir, tmp_path):
    """Function of an analysis and further arguments that gives its last line, nothing having been written.

    There is no such encoder: it would be the error if it were looked for first.
    """

    def line(analysis, *arguments, glue_dir=small_glue_dir, model=("--bert_hub", "http://127.0.0.1:9/no_encoder")):
        flags = ("--glue_dir", glue_dir, "--out", tmp_path / "out", *arguments)
        return refused("analyze", analysis, *model, *flags, unchanged=tmp_path)

    return line


def test_pairs_of_like_sentences_leave_the_correlation_undefined(line_of, tiny_encoder_dir, small_glue_dir, tmp_path):
    glue_dir = shutil.copytree(small_glue_dir, tmp_path / "glue")
    dev = glue_dir / "STS-B" / "dev.tsv"
    header, *rows = (line.split("\t") for line in dev.read_text().splitlines())
    same = [[*row[:8], row[7], row[9]] for row in rows]
    dev.write_text("".join("\t".join(row) + "\n" for row in (header, *same)))
    line = line_of("lexical", glue_dir=glue_dir, model=("--bert_hub", tiny_encoder_dir, "--max_seq_length", 8))
    n = PAIRS["dev"]
    assert line.startswith(f"sts-b, dev, without flow: found {n} cosines that are all 1 up to rounding, expected")
    assert "a correlation is undefined" in line
