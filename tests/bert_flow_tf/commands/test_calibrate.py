"""`bert-flow calibrate`: each calibration has the figures of its own embeddings."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.api import BertFlow
from bert_flow_tf.evaluation.calibration import calibration
from glow.config import GlowConfig
from tests.bert_flow_tf.commands.conftest import PAIRS
from tests.refusals import succeeds

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


def sentences_of(split):
    return [sentence for pair in zip(split.sentences_a, split.sentences_b, strict=True) for sentence in pair]


def test_every_row_is_fitted_on_all_splits_and_scored_on_test(
    calibrate, vectors, small_glue_dir, small_splits, tmp_path
):
    config, out = tmp_path / "flow.json", tmp_path / "new" / "results.json"
    config.write_text(json.dumps(GlowConfig(n_levels=2, depth=1, coupling_width=4).to_dict()))
    # Without --methods all of them stand in one table.
    printed = succeeds(*calibrate, "--seeds", "5,3", "--flow_model_config", config, "--out", out)
    written = json.loads(out.read_text())
    rows = {row["method"]: row for row in written["rows"]}
    assert list(rows) == ["none", "sn", "natsv-1", "natsv", "sn+natsv-1", "sn+natsv", "whitening", "flow"]
    assert [line.split()[0] for line in printed.splitlines()[3:11]] == list(rows)
    flow, names = rows.pop("flow"), {}
    for method, row in rows.items():
        assert f"{100 * row['by_metric']['spearman']:.2f}" in printed
        names[method] = method
        if method in ("natsv", "sn+natsv"):
            # k is the best of dev.
            by_k = {k: calibration(f"{method}-{k}").fit(vectors).transform(vectors[DEV]) for k in range(1, 21)}
            by_k = {k: spearman(of, small_splits["dev"].labels) for k, of in by_k.items()}
            assert row["dev_by_k"] == pytest.approx({str(k): value for k, value in by_k.items()}, abs=1e-6)
            assert row["k"] == max(by_k, key=by_k.get)
            names[method] = f"{method}-{row['k']}"
        test = calibration(names[method]).fit(vectors).transform(vectors[TEST].astype(np.float64))
        assert row["by_metric"]["spearman"] == pytest.approx(spearman(test, small_splits["test"].labels), abs=1e-6), (
            method
        )
    assert list(flow["by_seed"]) == ["5", "3"]
    values = [one["spearman"] for one in flow["by_seed"].values()]
    assert values[0] != values[1]
    assert flow["by_metric"]["spearman"] == pytest.approx(np.mean(values))
    assert f" {100 * np.mean(values):.2f} ± {100 * np.std(values, ddof=1):.2f} " in printed
    assert (written["metric"], written["fit_on"], written["task"]) == ("spearman", "all", "sts-b")
    best = max((flow, *rows.values()), key=lambda row: row["by_metric"]["spearman"])["method"]
    words = names | {"none": "the encoder", "flow": "flow"}
    assert f" pairs: {words[best]}" in printed
    sentences = "\n".join(sentence for split in small_splits.values() for sentence in sentences_of(split))
    assert written["sentences_sha256"] == hashlib.sha256(sentences.encode()).hexdigest()
    assert (written["glue_dir"], written["pairs"]) == (str(small_glue_dir), PAIRS)
    succeeds(*calibrate, "--methods", "sn", "--fit_on", "train", "--out", out, "--overwrite")
    (row,) = json.loads(out.read_text())["rows"]
    test = calibration("sn").fit(vectors[TRAIN]).transform(vectors[TEST])
    assert row["by_metric"]["spearman"] == pytest.approx(spearman(test, small_splits["test"].labels), abs=1e-6)


def test_the_flow_learns_with_dropout_unless_told_otherwise(calibrate, vectors, tmp_path, monkeypatch):
    def encode_pooled(model, sentences, dropout_seed=None):
        encoded.append((len(sentences), dropout_seed))
        return vectors[: len(sentences)]

    monkeypatch.setattr("bert_flow_tf.api.BertFlow.encode_pooled", encode_pooled)
    config, train = tmp_path / "flow.json", 2 * PAIRS["train"]
    config.write_text(json.dumps(GlowConfig(n_levels=1, depth=1, coupling_width=4).to_dict()))
    for options, found, title in (
        (["1,2", "--fit_on", "train"], [(train, 1), (train, 2)], "on train, the flow with dropout"),
        (["1,", "--no_dropout"], [], ", avg, 8 word pieces; fitted on all, the flow without dropout"),
    ):
        encoded = []
        printed = succeeds(*calibrate, "--methods", "flow", "--flow_model_config", config, "--seeds", *options)
        assert printed.splitlines()[0].endswith(title)
        assert encoded == [(ROWS, None), *found]


def test_dropout_of_another_seed_gives_other_embeddings(small_encoder_dir):
    model = BertFlow.from_hub(small_encoder_dir, max_seq_length=8)
    rows = [model.encode_pooled(["The cat sat"], dropout_seed=seed) for seed in (None, 1, 2)]
    for one, other in itertools.combinations(rows, 2):
        assert 0.01 < np.abs(one - other).mean() / np.abs(rows[0]).mean() < 1


def test_of_a_run_the_encoder_is_calibrated_not_its_flow(sts_run, small_glue_dir, small_splits, tmp_path):
    out = tmp_path / "results.json"
    succeeds("calibrate", "--model", sts_run, "--glue_dir", small_glue_dir, "--methods", "none", "--out", out)
    written = json.loads(out.read_text())
    run = BertFlow.load(sts_run)
    rows = run.encode_pooled(sentences_of(small_splits["test"]))
    assert written["rows"][0]["by_metric"]["spearman"] == pytest.approx(
        spearman(rows, small_splits["test"].labels), abs=1e-4
    )
    assert (written["model"]["checkpoint"], written["model"]["flow"]) == (str(sts_run / "model.ckpt-3"), None)
