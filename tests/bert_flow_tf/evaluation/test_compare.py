"""A comparison of calibrations."""

import numpy as np

from bert_flow_tf.evaluation import compare
from bert_flow_tf.evaluation.compare import Split
from tests.refusals import user_error


def splits(n=30, width=24):
    """Return splits of `n` pairs with labels 0 and 1."""
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=(2 * n, width)).astype(np.float32) for name in ("train", "dev", "test")}
    return {name: Split(rows, None if name == "train" else rng.uniform(size=n) > 0.5) for name, rows in parts.items()}


def test_labels_are_scored_by_auc_alone():
    results = compare.compare_calibrations(splits(), metric="auc", methods=["natsv", "none"])
    assert [row["method"] for row in results["rows"]] == ["natsv", "none"] and results["seeds"] == []
    assert all({"auc"} == {"auc", "spearman", "pearson"} & row.keys() for row in results["rows"])


def test_options_and_embeddings_that_do_not_fit_are_named():
    for found, keywords in {
        "flow: ": {"methods": ["flow"], "seeds": []},
        "flow: learning_rate: found -1": {"methods": ["flow"], "flow_options": {"learning_rate": -1}},
        "whitening-25: n_components=25": {"methods": ["whitening-25"]},
    }.items():
        with user_error(found):
            compare.compare_calibrations(splits(), **keywords)
    found = splits()
    found["dev"].embeddings[2 * 4 + 1, 7] = np.nan
    with user_error("embeddings of dev: found NaN in row 9, column 7"):
        compare.compare_calibrations(found, methods=["none"])
