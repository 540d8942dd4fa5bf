"""Whole runs are replayed, and a wrong step is seen."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import glow.optimizer
from bert_flow_tf.commands import verify
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.tasks import tasks
from glow.config import GlowConfig
from glow.flow import Glow
from glow.tf1_checkpoint import tf1_variables
from tests.bert_flow_tf import small_runs
from tests.golden import whole_runs
from tests.refusals import refused, succeeds, user_error

FLOW = {
    "sentence_embedding_type": "avg",
    "flow": 1,
    "flow_loss": 1,
    "num_examples": 0,
    "flow_model_config": "config_l2_d3_w32",
}
NLI = {"sentence_embedding_type": "avg", "flow": 0, "flow_loss": 0, "num_examples": -1}
SIZES = {
    "pairs": 30,
    "steps": 20,
    "warmup": 2,
    "learning_rate": 1e-3,
    "flow_learning_rate": 1e-2,
    "max_seq_length": 8,
}


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    """A folder with STS-B, MNLI and SNLI."""
    folder = tmp_path_factory.mktemp("whole") / "glue"
    small_runs.write_stsb(folder / "STS-B", gold=True)
    small_runs.write_mnli(folder / "MNLI")
    for split in ("train", "dev", "test"):
        rows = [
            [*"0123456", a, b, "neutral"]
            for a, b, _ in small_runs.random_pairs(4, small_runs.TINY_WORDS, 9)
        ]
        small_runs.write_tsv(
            folder / "SNLI" / f"{split}.tsv",
            [[*"0123456", "sentence1", "sentence2", "gold_label"], *rows],
        )
    return folder


@pytest.fixture(scope="module")
def runs(tiny_encoder_dir, glue):
    """Two runs of this code, each with a second one."""
    folder = glue.with_name("runs")
    folder.mkdir()
    source = whole_runs._without_dropout(resolve_encoder(bert_hub=str(tiny_encoder_dir)))
    rng = np.random.default_rng(0)
    flow = Glow(GlowConfig.load("config_l2_d3_w32"), 32, seed=0)
    starts = {
        "flow": tf1_variables(flow),
        "nli": {"loss/output_weights": rng.normal(size=[3, 96]).astype(np.float32)},
    }
    for name, flags in (("flow", FLOW), ("nli", NLI)):
        settings = {"flags": flags, **SIZES, "bert_hub": str(tiny_encoder_dir)}
        (folder / f"{name}.json").write_text(json.dumps(settings))
        run = whole_runs.WholeRun(**settings)
        values = {"order": rng.integers(30, size=[20, 4])} | {
            f"var/{key}": one for key, one in starts[name].items()
        }
        task = tasks.TASKS["sts-b" if name == "flow" else "allnli"]
        examples = tasks.read_train(task, glue / task.directory, name == "flow")
        model = whole_runs.start_model(run, values, source)
        losses = whole_runs.train(model, run, examples, task, values["order"])
        test = tasks.read_split(tasks.TASKS["sts-b"], glue / "STS-B", "test")
        cosines = rng.uniform(size=len(test))
        values |= {"losses": losses, "flow_losses": np.zeros(20), "test_cosines": cosines}
        if name == "nli":
            norms = [
                np.linalg.norm(one.numpy()) for one in model.encoder.variables_by_name.values()
            ]
            # TF1's graph has a layer norm's beta first.
            for place in (3, *(5 + 16 * layer + place for layer in range(3) for place in (8, 14))):
                norms[place], norms[place + 1] = norms[place + 1], norms[place]
            values["final_norm"] = np.array(norms)
        np.savez(folder / f"{name}.npz", **values)
        moved = values | {"losses": losses + np.linspace(0, 1e-3, 20), "test_cosines": cosines + 1}
        np.savez(folder / f"{name}_one_ulp_away.npz", **moved)
    return folder


def test_a_run_is_as_near_as_rounding_and_a_wrong_step_is_farther(runs, glue, monkeypatch):
    flow, nli = whole_runs.replay_runs(runs, glue, glue)
    for one in (flow, nli):
        assert one.ours.losses == (0.0, 0.0, 0.0)
        assert one.theirs.losses == pytest.approx((9e-3 / 19, 1e-3, 1e-3), rel=0.05)
        assert "nearer to TF1 than" in one.verdict
    assert flow.decay is None and nli.decay < 1e-3
    text = whole_runs.whole_runs_table([flow, nli]).to_text()
    assert "flow, here" in text and "nli, TF1 one unit away" in text
    far = dataclasses.replace(nli, ours=dataclasses.replace(nli.ours, cosines=1.5))
    assert "as near to TF1 as" in far.verdict
    far = dataclasses.replace(nli, ours=dataclasses.replace(nli.ours, cosines=float("nan")))
    assert "farther from TF1" in far.verdict
    monkeypatch.setattr(glow.optimizer, "EPSILON", 1e-3)
    assert "farther from TF1" in whole_runs.replay(runs / "flow", glue, glue).verdict
    monkeypatch.undo()
    # The losses of some steps do not show this.
    monkeypatch.setattr(glow.optimizer, "decays", lambda name: "bias" not in name)
    nli = whole_runs.replay(runs / "nli", glue, glue)
    assert 0.5 < nli.decay < 1.5


def test_verify_replays_what_it_has_data_for(runs, glue, tmp_path, monkeypatch):
    glue = shutil.copytree(glue, tmp_path / "glue", ignore=shutil.ignore_patterns("MNLI"))
    command = (
        "verify",
        "--whole_runs",
        runs,
        "--glue_dir",
        glue,
        "--out",
        tmp_path / "verification.json",
    )
    monkeypatch.setattr(verify, "_golden", lambda: {"deviations": [], "failed": [], "not_run": []})
    lines = succeeds(*command).splitlines()
    assert lines[0].startswith("distance from TF1's run") and not any(
        "nli, here" in line for line in lines
    )
    assert ["whole", "run", "flow", "✓"] in [line.split()[:4] for line in lines]
    assert "--glue_dir: missing" in refused("verify", "--whole_runs", runs)
    with user_error("expected the TF1 code's whole runs"):
        whole_runs.replay_runs(glue, glue, None)
