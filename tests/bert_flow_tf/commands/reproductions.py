"""Stands in for the commands that `reproduce` runs: tasks of four pairs, the same cosines from every run."""

import shutil

from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS
from tests.bert_flow_tf.recipe.workplace import Workplace
from tests.bert_flow_tf.small_runs import write_tsv

COSINES = [0.1, 0.4, 0.2, 0.9]
GOLD = [1, 2, 3, 4]  # Spearman with COSINES: .8


class ReproductionWorkplace(Workplace):
    """`Workplace` with tasks of four pairs, and NLI data in name only; every run is a copy of a finished one.

    Args:
      root, monkeypatch: as of `Workplace`.
      finished_run: folder of a run of `run_siamese`.
    """

    def __init__(self, root, monkeypatch, finished_run):
        super().__init__(root, monkeypatch)
        self.finished_run = finished_run
        sentences = [f"Boat {i}." for i in range(len(GOLD))]
        rows = [["-"] * 7 + pair for pair in (["sentence1", "sentence2"], *([s, s] for s in sentences))]
        write_tsv(self.glue / "STS-B" / "test.tsv", rows)
        rows = zip(map(str, GOLD), sentences, strict=True)
        write_tsv(self.glue / "STS-B" / "sts-test.csv", [["-"] * 4 + [gold, s, s] for gold, s in rows])
        labels = ["not_entailment", "entailment", "not_entailment", "entailment"]
        rows = [[str(i), s, s, label] for i, (s, label) in enumerate(zip(sentences, labels, strict=True))]
        write_tsv(self.glue / "QNLI-Regression" / "dev.tsv", [["index", "question", "sentence", "label"], *rows])
        for name in SENTEVAL_SUBSETS["sts12"]:
            folder = root / "SentEval" / "STS" / "STS12-en-test"
            write_tsv(folder / f"STS.input.{name}.txt", [[f"{name} {s}", s] for s in sentences])
            write_tsv(folder / f"STS.gs.{name}.txt", [[str(gold)] for gold in GOLD])
        self.cosines = {"STS-B": COSINES, "QNLI-Regression": COSINES, "STS-12": COSINES * 5}

    def leave_run(self, run_dir):
        shutil.copytree(self.finished_run, run_dir, dirs_exist_ok=True)
        for path in run_dir.glob("test_*"):
            path.unlink()
