"""A comparison of calibrations."""

import numpy as np
import pytest

from bert_flow_tf.evaluation import compare
from bert_flow_tf.evaluation.compare import Split
from tests.refusals import user_error


def splits(n=30, width=24, labels=False):
    rng = np.random.default_rng(0)
    found = {}
    for name in ("train", "dev", "test"):
        embeddings = rng.normal(size=(2 * n, width)).astype(np.float32)
        gold = rng.uniform(0, 5, n)
        found[name] = Split(embeddings, None if name == "train" else gold > 2.5 if labels else gold)
    return found


def test_rows_are_in_the_given_order():
    results = compare.compare_calibrations(splits(), methods=["sn", "none"])
    assert [row["method"] for row in results["rows"]] == ["sn", "none"]
    assert results["seeds"] == []
    results = compare.compare_calibrations(splits(labels=True), metric="auc", methods=["none", "natsv"])
    assert all({"auc"} == {"auc", "spearman", "pearson"} & row.keys() for row in results["rows"])


def test_of_equal_scores_the_smallest_k_is_chosen():
    found = splits()
    # Two pairs whose cosine is 1 and -1 before and after: every k orders them alike.
    a, b = found["dev"].embeddings[:2]
    found["dev"] = Split(np.stack([a, a, b, -b]), np.array([5.0, 0.0]))
    (row,) = compare.compare_calibrations(found, methods=["natsv"])["rows"]
    assert len(row["dev_by_k"]) == 20
    assert len(set(row["dev_by_k"].values())) == 1
    assert (row["k"], row["dev"]) == (1, pytest.approx(1))


@pytest.mark.parametrize(
    ("keywords", "found"),
    [
        ({"methods": ["zca"]}, "'zca'"),
        ({"methods": ["flow"], "seeds": []}, "flow: "),
        ({"methods": ["flow"], "flow_options": {"learning_rate": -1}}, "flow: learning_rate: found -1"),
        ({"methods": ["whitening-25"]}, "whitening-25: n_components=25"),
    ],
)
def test_what_cannot_be_compared_is_named(keywords, found):
    with user_error(found):
        compare.compare_calibrations(splits(), **keywords)


def test_embeddings_that_are_not_finite_are_named():
    found = splits()
    found["dev"].embeddings[2 * 4 + 1, 7] = np.nan
    with user_error("embeddings of dev: found NaN in row 9, column 7"):
        compare.compare_calibrations(found, methods=["none"])
