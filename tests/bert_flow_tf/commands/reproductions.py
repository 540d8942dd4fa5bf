"""Stands in for the commands that `reproduce` runs: tasks of four pairs, the same cosines from every run."""

import functools
import sys

from bert_flow_tf import experiment, recipe
from bert_flow_tf.evaluation.sts_sets import SENTEVAL_SUBSETS
from tests.bert_flow_tf.test_recipe import Workplace

COSINES = [0.1, 0.4, 0.2, 0.9]
GOLD = [1, 2, 3, 4]  # Spearman with COSINES: .8
CONFIG = {
    "encoder": {"bert_hub": "base", "fingerprint": "f" * 64},
    "task_name": "sts-b",
    "sentence_embedding_type": "avg-last-2",
    "max_seq_length": 64,
    "low_dim": -1,
    "encoder_trained": False,
    "data": {"num_examples": 8628},
    "flow_config": None,
    "flags": {},
}


def write_rows(path, rows, header=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ([] if header is None else [header]) + rows
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))


def stand_in_workplace(tmp_path, monkeypatch):
    """`Workplace` with tasks of four pairs, for which every run predicts the same cosines; NLI data in name only."""
    workplace = Workplace(tmp_path)
    sentences = [f"Boat {i}." for i in range(len(GOLD))]
    stsb = workplace.glue / "STS-B"
    write_rows(stsb / "test.tsv", [["-"] * 7 + [s, s] for s in sentences], ["-"] * 7 + ["sentence1", "sentence2"])
    write_rows(stsb / "sts-test.csv", [["-"] * 4 + [g, s, s] for g, s in zip(GOLD, sentences, strict=True)])
    labels = ["not_entailment", "entailment", "not_entailment", "entailment"]
    rows = [[i, s, s, label] for i, (s, label) in enumerate(zip(sentences, labels, strict=True))]
    write_rows(workplace.glue / "QNLI-Regression/dev.tsv", rows, ["index", "question", "sentence", "label"])
    for name in SENTEVAL_SUBSETS["sts12"]:
        folder = tmp_path / "SentEval/STS/STS12-en-test"
        write_rows(folder / f"STS.input.{name}.txt", [[f"{name} {s}", s] for s in sentences])
        write_rows(folder / f"STS.gs.{name}.txt", [[g] for g in GOLD])
    (tmp_path / "pairs").mkdir()
    for name, times in (("STS-B", 1), ("QNLI-Regression", 1), ("STS-12", 5)):
        (tmp_path / "pairs" / name).write_text("".join(f"{cosine}\n" for cosine in COSINES * times))
    stand_in = functools.partial(recipe.run, interpreter=(sys.executable, str(workplace.stand_in)))
    monkeypatch.setattr(recipe, "run", stand_in)
    # What a run leaves beside its checkpoint, of which the stand-in leaves the name only.
    monkeypatch.setattr(experiment, "read_config", lambda folder: CONFIG)
    return workplace
