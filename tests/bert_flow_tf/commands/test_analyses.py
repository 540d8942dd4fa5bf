"""`bert-flow analyses`: the paper's Tables 1 and 6."""

import importlib.util
import json

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.report.lexical import edit_distances
from bert_flow_tf.vectors.metrics import spearman
from bert_flow_tf.vectors.similarities import cosines_of_pairs
from tests.refusals import bert_flow, refusal, refused, succeeds

pytestmark = pytest.mark.usefixtures("small_default_flow")


def test_table_6_is_of_the_runs_own_flow(sts_run, small_glue_dir, small_splits, require, tmp_path):
    require("rapidfuzz")
    out, plot = tmp_path / "analyses.json", tmp_path / "analyses.svg"
    flags = ("--tables", "6", "--glue_dir", small_glue_dir, "--out", out, "--plot", plot)
    printed = succeeds("analyses", "--model", sts_run, *flags)
    dev, run = small_splits["dev"], BertFlow.load(sts_run)
    distances = edit_distances(dev.sentences_a, dev.sentences_b)
    found = json.loads(out.read_text())["lexical"]
    # In float32, equal sentences would have different cosines, and no ties.
    found_cosines = cosines_of_pairs(
        run.encode(dev.sentences_a), run.encode(dev.sentences_b), "dev"
    )
    assert found["with flow"] == pytest.approx(
        {
            "edit_distance": spearman(found_cosines, distances),
            "gold": spearman(found_cosines, dev.labels),
        }
    )
    assert found["gold"]["gold"] == pytest.approx(1) and "paper" not in printed
    assert plot.read_text().startswith("<?xml")
    assert "edit distance" in succeeds("report", "--runs", out)
    given = ("--model", sts_run, "--tables", "6", "--glue_dir", small_glue_dir, "--seed", "3")
    assert "--seed: found it beside --model" in refused("analyses", *given)
    words_alone = ("--bert_hub", "demo", "--tables", "1", "--method", "sn")
    assert "--method: found it beside --tables 1" in refused("analyses", *words_alone)


def test_a_flow_is_learned_for_table_6(documented_encoder_dir, small_glue_dir, require, tmp_path):
    require("rapidfuzz")
    out = tmp_path / "analyses.json"
    flags = ("--num_train_epochs", "1", "--train_batch_size", "16", "--glue_dir", small_glue_dir)
    encoder = ("--bert_hub", documented_encoder_dir, "--tables", "6")
    succeeds("analyses", *encoder, *flags, "--out", out)
    written = json.loads(out.read_text())
    assert written["model"]["flow"]["training"]["settings"]["epochs"] == 1
    assert list(written["lexical"]) == ["gold", "without flow", "with flow"]


def test_words_are_counted_for_table_1(golden_dir, tiny_encoder_dir, require, tmp_path):
    require("wordfreq")
    out = tmp_path / "analyses.json"
    english = golden_dir / "transformers" / "bert"
    words = ("--max_seq_length", 8, "--tables", "1")
    printed = succeeds("analyses", "--bert_hub", english, *words, "--out", out)
    assert "mean 3-NN dot product" in printed
    assert np.shape([*json.loads(out.read_text())["frequency"].values()]) == (7, 4)
    line = refused("analyses", "--bert_hub", tiny_encoder_dir, *words)
    assert line.startswith("--tables: found 1 with an encoder without English words")


@pytest.mark.parametrize(("table", "missing"), [("1", "wordfreq"), ("6", "rapidfuzz")])
def test_a_missing_library_is_named_before_any_work(table, missing, monkeypatch, small_glue_dir):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    flags = ("--tables", table, *(("--glue_dir", small_glue_dir) if table == "6" else ()))
    outcome = bert_flow("analyses", "--bert_hub", "demo", *flags)
    assert "the extra analyses is not installed" in refusal(outcome.exit_code, outcome.stderr)
