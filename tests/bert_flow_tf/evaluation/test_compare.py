"""One comparison of calibrations: what it refuses and what it hands on."""

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import compare
from bert_flow_tf.evaluation.compare import Split


def splits(n=30, width=24, labels=False):
    rng = np.random.default_rng(0)
    found = {}
    for name in ("train", "dev", "test"):
        embeddings = rng.normal(size=(2 * n, width)).astype(np.float32)
        gold = rng.uniform(0, 5, n)
        found[name] = Split(embeddings, None if name == "train" else gold > 2.5 if labels else gold)
    return found


def test_every_row_is_handed_on_as_soon_as_it_is_there():
    seen = []
    results = compare.compare_calibrations(
        splits(), methods=["sn", "none"], on_row=lambda row: seen.append(row["method"])
    )
    assert seen == [row["method"] for row in results["rows"]] == ["sn", "none"]
    assert results["seeds"] == []


def test_two_labels_are_scored_by_auc_alone():
    results = compare.compare_calibrations(splits(labels=True), metric="auc", methods=["none", "natsv"])
    assert all({"auc"} == {"auc", "spearman", "pearson"} & row.keys() for row in results["rows"])


def test_of_equal_scores_on_dev_the_smallest_k_is_chosen():
    found = splits()
    # Two pairs whose cosine is 1 and -1 before and after: every k orders them alike.
    a, b = found["dev"].embeddings[:2]
    found["dev"] = Split(np.stack([a, a, b, -b]), np.array([5.0, 0.0]))
    (row,) = compare.compare_calibrations(found, methods=["natsv"])["rows"]
    assert len(row["dev_by_k"]) == 20
    assert len(set(row["dev_by_k"].values())) == 1
    assert (row["k"], row["dev"]) == (1, pytest.approx(1))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"methods": ["zca"]}, "methods: unknown calibration 'zca'"),
        ({"methods": ["flow"], "seeds": []}, "flow: .*at least one"),
        ({"methods": ["whitening-25"]}, "whitening-25: n_components=25 must be between 0 and"),
    ],
)
def test_what_cannot_be_compared_is_refused(keywords, message):
    with pytest.raises(UserError, match=message):
        compare.compare_calibrations(splits(), **keywords, on_row=pytest.fail)


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_embeddings_that_are_not_finite_are_refused_with_their_split(name):
    found = splits()
    found[name].embeddings[2 * 4 + 1, 7] = np.nan
    with pytest.raises(UserError, match=f"embeddings of {name}: found NaN in row 9, column 7"):
        compare.compare_calibrations(found, methods=["none"])


def test_a_flow_that_cannot_be_fitted_is_one_line():
    with pytest.raises(UserError, match=r"^flow: learning_rate: found -1, expected a number above 0 .*$"):
        compare.compare_calibrations(splits(), methods=["flow"], flow_options={"learning_rate": -1})
