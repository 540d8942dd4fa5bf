"""MTEB evaluates a BertFlow on a small task."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from bert_flow_tf import BertFlow
from bert_flow_tf.mteb_model import MtebModel

FIRST = ["w1 w2 w3", "w4 w5", "w6 w7 w8", "w9", "w2 w4"]
SECOND = ["w1 w2 w4", "w10 w5", "w6 w7 w8", "w11 w12", "w3 w13 w5"]
SCORES = [4.0, 2.5, 5.0, 0.0, 1.0]


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    return BertFlow.from_hub(str(tiny_encoder_dir), max_seq_length=8)


def test_mteb_scores_a_local_sts_task(require, model):
    require("mteb")
    import datasets
    import mteb
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class SmallSTS(AbsTaskSTS):
        metadata = TaskMetadata(
            name="SmallSTS",
            description="Pairs of words.",
            reference=None,
            dataset={"path": "local/small", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )

        def load_data(self, **options):
            columns = {"sentence1": FIRST, "sentence2": SECOND, "score": SCORES}
            self.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(columns)})
            self.data_loaded = True

    wrapped = MtebModel(model, name="tests/tiny")
    results = mteb.evaluate(wrapped, SmallSTS(), cache=None, show_progress_bar=False)
    (scores,) = results.task_results[0].scores["test"]
    cosines = np.diag(model.similarity(FIRST, SECOND))
    assert scores["main_score"] == pytest.approx(spearmanr(cosines, SCORES).statistic, abs=1e-6)
    assert scores["pearson"] == pytest.approx(np.corrcoef(cosines, SCORES)[0, 1], abs=1e-5)
    assert results.model_name == "tests/tiny"
