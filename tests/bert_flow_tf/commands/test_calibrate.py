"""`bert-flow calibrate`: each calibration has the figures of its own embeddings."""

import hashlib
import json
import re

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.api import BertFlow
from bert_flow_tf.evaluation.calibration import calibration
from bert_flow_tf.paper.figures import paper_tables
from glow.calibrator import FlowCalibrator
from glow.config import GlowConfig
from tests.bert_flow_tf.commands.conftest import PAIRS
from tests.refusals import refused, succeeds

WIDTH = 24
ROWS = 2 * sum(PAIRS.values())
TRAIN, DEV, TEST = slice(2 * PAIRS["train"]), slice(2 * PAIRS["train"], -2 * PAIRS["test"]), slice(-32, None)


@pytest.fixture(scope="module")
def vectors():
    """A row for each sentence of all splits; channel 3 is constant."""
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(ROWS, WIDTH)) * np.linspace(0.3, 2, WIDTH) + 1).astype(np.float32)
    rows[:, 3] = 0.7
    return rows


@pytest.fixture
def calibrate(vectors, tiny_encoder_dir, small_glue_dir, monkeypatch):
    """Arguments of the command on an encoder whose embeddings are the vectors."""
    monkeypatch.setattr("bert_flow_tf.api.BertFlow.encode_pooled", lambda model, sentences, dropout_seed=None: vectors)
    return "calibrate", "--bert_hub", tiny_encoder_dir, "--max_seq_length", 8, "--glue_dir", small_glue_dir


def spearman(rows, gold):
    """Spearman of the cosines of the pairs whose rows follow each other."""
    rows = np.asarray(rows, np.float64)
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (rows[::2], rows[1::2]))
    # Pairs of like sentences are ties.
    return stats.spearmanr(np.sum(a * b, axis=1).round(12), gold).statistic


def test_every_row_is_fitted_on_all_splits_and_scored_on_test(
    calibrate, vectors, small_glue_dir, small_splits, small_gold, tmp_path
):
    config, out = tmp_path / "flow.json", tmp_path / "new" / "results.json"
    config.write_text(json.dumps(GlowConfig(n_levels=2, depth=1, coupling_width=4).to_dict()))
    # Without --methods all of them stand in one table.
    printed = succeeds(*calibrate, "--seeds", "5,3", "--flow_model_config", config, "--out", out)
    written = json.loads(out.read_text())
    rows = {row["method"]: row for row in written["rows"]}
    assert list(rows) == ["none", "sn", "natsv-1", "natsv", "sn+natsv-1", "sn+natsv", "whitening", "flow"]
    assert [line.split()[0] for line in printed.splitlines()[3:11]] == list(rows)
    for name, row in rows.items():
        assert f"{100 * row['spearman']:.2f}" in printed and "paper" not in row
        if name in ("natsv", "sn+natsv"):
            # k is the best of dev.
            by_k = {k: calibration(f"{name}-{k}").fit(vectors).transform(vectors[DEV]) for k in range(1, 21)}
            by_k = {k: spearman(of, small_splits["dev"].labels) for k, of in by_k.items()}
            assert row["dev_by_k"] == pytest.approx({str(k): value for k, value in by_k.items()}, abs=1e-6)
            assert row["k"] == max(by_k, key=by_k.get)
            name = f"{name}-{row['k']}"
        if name != "flow":
            test = calibration(name).fit(vectors).transform(vectors[TEST].astype(np.float64))
            assert row["spearman"] == pytest.approx(spearman(test, small_gold), abs=1e-6), name
    flow = rows["flow"]
    assert [one["seed"] for one in flow["by_seed"]] == written["seeds"] == [5, 3]
    values = [one["spearman"] for one in flow["by_seed"]]
    assert values[0] != values[1]
    assert (flow["spearman"], flow["median"]) == pytest.approx((np.mean(values), np.median(values)))
    assert flow["std"] == pytest.approx(np.std(values, ddof=1))
    assert (written["fit_rows"], written["width"], written["constant_channels"]) == (ROWS, WIDTH, [3])
    assert (written["metric"], written["fit_on"], written["task"]) == ("spearman", "all", "sts-b")
    best = max(rows.values(), key=lambda row: row["spearman"])
    words = {"none": "the encoder without a calibration."}.get(
        name := best["method"], f"{name}-{best['k']}" if "k" in best else name
    )
    assert f"\nBest on these pairs: {words}" in printed
    # These are other pairs than the paper's.
    assert "paper" not in printed
    pairs = [pair for split in small_splits.values() for pair in zip(split.sentences_a, split.sentences_b, strict=True)]
    sentences = "\n".join(sentence for pair in pairs for sentence in pair)
    assert written["sentences_sha256"] == hashlib.sha256(sentences.encode()).hexdigest()
    assert (written["glue_dir"], written["pairs"]) == (str(small_glue_dir), PAIRS)
    assert written["flow_model_config"] == str(config)


def test_the_flow_learns_with_dropout_unless_told_otherwise(small_encoder_dir, small_glue_dir, tmp_path, monkeypatch):
    config, learned = tmp_path / "flow.json", []
    config.write_text(json.dumps(GlowConfig(n_levels=1, depth=1, coupling_width=4).to_dict()))
    (tmp_path / "STS-B").mkdir()
    for path in (small_glue_dir / "STS-B").iterdir():
        # In words of the encoder that drops out.
        text = re.sub(r"\bw(\d+)", lambda word: ("The", "the", "cat", "sat")[int(word[1]) % 4], path.read_text())
        (tmp_path / "STS-B" / path.name).write_text(text)
    fit = FlowCalibrator.fit
    monkeypatch.setattr(FlowCalibrator, "fit", lambda flow, rows: learned.append(rows) or fit(flow, rows))
    arguments = ("--bert_hub", small_encoder_dir, "--max_seq_length", 8, "--glue_dir", tmp_path)
    arguments += ("--flow_model_config", config)
    title = succeeds("calibrate", *arguments, "--methods", "flow", "--seeds", "1,2").splitlines()[0]
    assert title.endswith(", avg, 8 word pieces; fitted on all, the flow with dropout")
    options = ("--methods", "flow", "--seeds", "1,", "--no_dropout", "--fit_on", "train")
    title = succeeds("calibrate", *arguments, *options).splitlines()[0]
    assert title.endswith("fitted on train, the flow without dropout")
    first, second, plain = learned
    assert len(first) == ROWS and len(plain) == 2 * PAIRS["train"]
    for one, other in ((first, second), (first[: len(plain)], plain)):
        assert 0.01 < np.abs(one - other).mean() / np.abs(plain).mean() < 1


def test_on_the_papers_pairs_table_5_stands_beside(calibrate, monkeypatch):
    monkeypatch.setitem(paper_tables()["pairs"], "STS-B test", [PAIRS["test"]] * 2)
    printed = succeeds(*calibrate, "--methods", "none,natsv-2")
    none, natsv = [line for line in printed.splitlines() if line.startswith(("none", "natsv-2"))]
    assert none.endswith("47.29  BERT-base") and "Table 5" in printed
    assert "BERT" not in natsv  # natsv-2 is no row of Table 5


def test_fitted_on_train_alone_no_other_split_is_seen(calibrate, vectors, small_gold, tmp_path, monkeypatch):
    monkeypatch.setitem(paper_tables()["pairs"], "STS-B test", [PAIRS["test"]] * 2)
    out = tmp_path / "results.json"
    printed = succeeds(*calibrate, "--methods", "sn", "--fit_on", "train", "--out", out)
    (row,) = json.loads(out.read_text())["rows"]
    test = calibration("sn").fit(vectors[TRAIN]).transform(vectors[TEST])
    assert row["spearman"] == pytest.approx(spearman(test, small_gold), abs=1e-6)
    assert "Table 5" not in printed and "paper" not in row


@pytest.mark.usefixtures("cache")
def test_of_a_run_the_encoder_is_calibrated_not_its_flow(sts_run, small_glue_dir, small_splits, small_gold, tmp_path):
    out = tmp_path / "results.json"
    succeeds("calibrate", "--model", sts_run, "--glue_dir", small_glue_dir, "--methods", "none", "--out", out)
    written = json.loads(out.read_text())
    run = BertFlow.load(sts_run)
    test = small_splits["test"]
    rows = run.encode_pooled([s for pair in zip(test.sentences_a, test.sentences_b, strict=True) for s in pair])
    assert written["rows"][0]["spearman"] == pytest.approx(spearman(rows, small_gold), abs=1e-4)
    model = written["model"]
    assert model["checkpoint"] == str(sts_run / "model.ckpt-3")
    assert (model["flow"], written["width"], model["pooling"]) == (None, 32, "avg-last-2")
    assert model["encoder"]["fingerprint"] == run.source.fingerprint
    assert "tensorflow" in written["made_by"]["libraries"]


def test_constant_similarity_leaves_the_correlation_undefined(calibrate, monkeypatch):
    rows = np.linspace(1, 2, WIDTH, dtype=np.float32) * np.linspace(1, 5, ROWS, dtype=np.float32)[:, None]
    monkeypatch.setattr("bert_flow_tf.api.BertFlow.encode_pooled", lambda model, sentences, dropout_seed=None: rows)
    line = refused(*calibrate, "--methods", "none,sn")
    assert line.startswith(f"none, test: found {PAIRS['test']} cosines that are all 1 up to rounding")
