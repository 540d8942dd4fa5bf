"""`bert-flow calibrate`: each calibration's figures are those of its own embeddings, and mistakes are one line."""

import hashlib
import json

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.evaluation.calibration import calibration
from bert_flow_tf.paper.figures import paper_tables
from glow.config import GlowConfig
from tests.bert_flow_tf.commands.conftest import PAIRS
from tests.refusals import refused, succeeds

WIDTH = 24
ROWS = 2 * sum(PAIRS.values())


@pytest.fixture(scope="module")
def vectors():
    """A row for each sentence: train, dev, test, each pair's two after one another; channel 3 is constant."""
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(ROWS, WIDTH)) * np.linspace(0.3, 2, WIDTH) + 1).astype(np.float32)
    rows[:, 3] = 0.7
    return rows


@pytest.fixture
def encoder(vectors, tiny_encoder_dir, monkeypatch):
    """Options of an encoder whose embeddings are the vectors."""
    monkeypatch.setattr("bert_flow_tf.api.BertFlow.encode_pooled", lambda model, sentences: vectors)
    return "--bert_hub", tiny_encoder_dir, "--max_seq_length", 8


def spearman(rows, gold):
    """Of the cosines of the pairs whose rows follow each other."""
    rows = np.asarray(rows, np.float64)
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (rows[::2], rows[1::2]))
    # Pairs of like sentences are ties.
    return stats.spearmanr(np.sum(a * b, axis=1).round(12), gold).statistic


def gold_of_test(glue_dir):
    lines = (glue_dir / "STS-B" / "sts-test.csv").read_text().splitlines()
    return [float(line.split("\t")[4]) for line in lines]


def test_every_row_is_fitted_on_all_splits_and_scored_on_test(encoder, vectors, small_glue_dir, tmp_path):
    out = tmp_path / "new" / "results.json"
    methods = "none,sn,natsv-2,whitening"
    printed = succeeds("calibrate", *encoder, "--glue_dir", small_glue_dir, "--methods", methods, "--out", out)
    written = json.loads(out.read_text())
    gold = gold_of_test(small_glue_dir)
    for row in written["rows"]:
        fitted = calibration(row["method"]).fit(vectors)
        test = fitted.transform(vectors[-2 * PAIRS["test"] :].astype(np.float64))
        assert row["spearman"] == pytest.approx(spearman(test, gold), abs=1e-6), row["method"]
        assert f"{100 * row['spearman']:.2f}" in printed
    assert [row["method"] for row in written["rows"]] == methods.split(",")
    assert {key: written[key] for key in ("fit_rows", "width", "constant_channels", "metric", "fit_on")} == {
        "fit_rows": ROWS,
        "width": WIDTH,
        "constant_channels": [3],
        "metric": "spearman",
        "fit_on": "all",
    }
    # Of other pairs than the paper's.
    assert "paper" not in printed and "paper" not in written["rows"][0]
    lines = [
        line for split in PAIRS for line in (small_glue_dir / "STS-B" / f"{split}.tsv").read_text().splitlines()[1:]
    ]
    sentences = [sentence for line in lines for sentence in line.split("\t")[7:9]]
    assert (written["task"], written["glue_dir"], written["pairs"]) == ("sts-b", str(small_glue_dir), PAIRS)
    assert written["sentences_sha256"] == hashlib.sha256("\n".join(sentences).encode()).hexdigest()


def test_on_the_papers_pairs_table_5_stands_beside(encoder, small_glue_dir, monkeypatch):
    monkeypatch.setitem(paper_tables()["pairs"], "STS-B test", [PAIRS["test"]] * 2)
    printed = succeeds("calibrate", *encoder, "--glue_dir", small_glue_dir, "--methods", "none,natsv-2")
    none, natsv = [line for line in printed.splitlines() if line.startswith(("none", "natsv-2"))]
    assert none.endswith("47.29 (BERT-base, not comparable)  BERT-base")
    assert "BERT" not in natsv  # natsv-2 is no row of Table 5
    assert "Table 5" in printed


def test_fitted_on_train_alone_nothing_of_other_splits_is_seen(encoder, vectors, small_glue_dir, tmp_path):
    out = tmp_path / "results.json"
    flags = ("--methods", "sn", "--fit_on", "train", "--out", out)
    printed = succeeds("calibrate", *encoder, "--glue_dir", small_glue_dir, *flags)
    (row,) = json.loads(out.read_text())["rows"]
    train = vectors[: 2 * PAIRS["train"]].astype(np.float64)
    scale = np.where(train.std(axis=0) > 1e-6, train.std(axis=0), 1)
    test = (vectors[-2 * PAIRS["test"] :] - train.mean(axis=0)) / scale
    assert row["spearman"] == pytest.approx(spearman(test, gold_of_test(small_glue_dir)), abs=1e-6)
    assert "Table 5" not in printed
    assert "paper" not in row


def test_k_is_the_best_of_dev_alone(encoder, vectors, small_glue_dir, small_splits, tmp_path):
    out = tmp_path / "results.json"
    flags = ("--methods", "sn+natsv", "--out", out)
    succeeds("calibrate", *encoder, "--glue_dir", small_glue_dir, *flags)
    (row,) = json.loads(out.read_text())["rows"]
    dev = vectors[2 * PAIRS["train"] : -2 * PAIRS["test"]]
    by_k = {
        k: spearman(calibration(f"sn+natsv-{k}").fit(vectors).transform(dev), small_splits["dev"].labels)
        for k in range(1, 21)
    }
    assert row["dev_by_k"] == pytest.approx({str(k): value for k, value in by_k.items()}, abs=1e-6)
    assert row["k"] == max(by_k, key=by_k.get)
    fitted = calibration(f"sn+natsv-{row['k']}").fit(vectors)
    expected = spearman(fitted.transform(vectors[-2 * PAIRS["test"] :]), gold_of_test(small_glue_dir))
    assert row["spearman"] == pytest.approx(expected, abs=1e-6)


def test_flow_is_learned_once_a_seed_and_told_by_mean_deviation_and_median(encoder, small_glue_dir, tmp_path):
    config, out = tmp_path / "flow.json", tmp_path / "results.json"
    config.write_text(json.dumps(GlowConfig(n_levels=2, depth=1, coupling_width=4).to_dict()))
    flags = ("--methods", "flow", "--seeds", "5,3", "--flow_model_config", config, "--out", out)
    succeeds("calibrate", *encoder, "--glue_dir", small_glue_dir, *flags)
    written = json.loads(out.read_text())
    (row,) = written["rows"]
    assert [one["seed"] for one in row["by_seed"]] == written["seeds"] == [5, 3]
    values = [one["spearman"] for one in row["by_seed"]]
    assert values[0] != values[1]
    assert (row["spearman"], row["median"]) == pytest.approx((np.mean(values), np.median(values)))
    assert row["std"] == pytest.approx(np.std(values, ddof=1))
    assert written["flow_model_config"] == str(config)


def test_without_methods_all_of_them_stand_in_one_table(encoder, small_glue_dir, tmp_path):
    out = tmp_path / "results.json"
    config = tmp_path / "flow.json"
    config.write_text(json.dumps(GlowConfig(n_levels=1, depth=1, coupling_width=4).to_dict()))
    flags = ("--seeds", "1", "--flow_model_config", config, "--out", out)
    printed = succeeds("calibrate", *encoder, "--glue_dir", small_glue_dir, *flags).splitlines()
    names = ["none", "sn", "natsv-1", "natsv", "sn+natsv-1", "sn+natsv", "whitening", "flow"]
    assert [line.split()[0] for line in printed[2:10]] == names
    rows = json.loads(out.read_text())["rows"]
    assert np.isfinite([row["spearman"] for row in rows]).all()


def test_of_a_run_the_encoder_is_calibrated_not_its_flow(sts_run, tiny_trio, small_glue_dir, tmp_path, monkeypatch):
    from bert_flow_tf.api import BertFlow

    monkeypatch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
    out = tmp_path / "results.json"
    succeeds("calibrate", "--model", sts_run, "--glue_dir", small_glue_dir, "--methods", "none", "--out", out)
    written = json.loads(out.read_text())
    run = BertFlow.load(sts_run)
    plain = BertFlow.from_hub(run.source.bert_hub, sentence_embedding_type="avg-last-2", max_seq_length=8)
    pairs = [line.split("\t")[7:9] for line in (small_glue_dir / "STS-B" / "test.tsv").read_text().splitlines()[1:]]
    rows = plain.encode([sentence for pair in pairs for sentence in pair])
    assert written["rows"][0]["spearman"] == pytest.approx(spearman(rows, gold_of_test(small_glue_dir)), abs=1e-4)
    model = written["model"]
    assert model["checkpoint"] == str(sts_run / "model.ckpt-3")
    assert (model["flow"], written["width"], model["pooling"]) == (None, 32, "avg-last-2")
    assert model["encoder"]["fingerprint"] == run.source.fingerprint
    assert "tensorflow" in written["made_by"]["libraries"]


def test_constant_similarity_leaves_the_correlation_undefined(encoder, small_glue_dir, monkeypatch):
    rows = np.linspace(1, 2, WIDTH, dtype=np.float32) * np.linspace(1, 5, ROWS, dtype=np.float32)[:, None]
    monkeypatch.setattr("bert_flow_tf.api.BertFlow.encode_pooled", lambda model, sentences: rows)
    line = refused("calibrate", *encoder, "--glue_dir", small_glue_dir, "--methods", "none,sn")
    assert line.startswith(f"none, test: found {PAIRS['test']} cosines that are all 1 up to rounding")
