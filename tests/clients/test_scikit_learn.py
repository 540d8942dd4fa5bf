"""Every kind of model is an estimator of scikit-learn, from texts."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks, get_tags

from bert_flow_tf import calibrate
from bert_flow_tf.model.any_encoder import Calibrated
from tests.refusals import user_error

# These of scikit-learn's own checks need no numbers as input.
_CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_mixin_order",
)


def _lengths(texts):
    return np.array([[len(text), text.count("o"), text.count("e")] for text in texts], float)


@pytest.fixture(params=["BertFlow", "Calibrated", "ExportedModel"])
def model(request, prompted, texts):
    if request.param == "Calibrated":
        return calibrate(_lengths, texts, method="whitening")
    if request.param == "ExportedModel":
        return request.getfixturevalue("exported")
    return copy.copy(prompted)


@pytest.fixture
def labels(texts):
    return [text.startswith(("the", "fox", "dog")) for text in texts]


@pytest.mark.parametrize("check", _CHECKS)
def test_model_passes_scikit_learns_checks(model, check):
    getattr(estimator_checks, check)(type(model).__name__, model)
    assert get_tags(model).input_tags.string


def test_grid_search_classifies_by_embeddings(model, texts, labels):
    expected = model.encode(texts)
    search = GridSearchCV(
        make_pipeline(model, LogisticRegression()),
        {f"{type(model).__name__.lower()}__truncate_dim": [1, None]},
        cv=2,
    ).fit(texts, labels)
    first = search.best_estimator_[0]
    np.testing.assert_allclose(first.transform(texts), expected[:, : first.truncate_dim], atol=1e-5)
    by_hand = LogisticRegression().fit(expected[:, : first.truncate_dim], labels)
    np.testing.assert_array_equal(
        search.predict(texts), by_hand.predict(expected[:, : first.truncate_dim])
    )


def test_column_transformer_and_set_output_give_tables(model, texts, labels, require):
    require("pandas")
    import pandas as pd

    table = pd.DataFrame({"text": texts, "number": np.arange(100.0)}, index=range(7, 107))
    columns = make_column_transformer((model, "text"), remainder="passthrough")
    name = type(model).__name__.lower()
    names = [*(f"{name}__{name}{i}" for i in range(model.embedding_size)), "remainder__number"]
    assert columns.fit(table).get_feature_names_out().tolist() == names
    found = columns.set_output(transform="pandas").fit_transform(table, labels)
    assert found.columns.tolist() == names and found.index.tolist() == table.index.tolist()
    np.testing.assert_allclose(found.iloc[:, :-1], model.encode(texts), atol=1e-5)
    again = pickle.loads(pickle.dumps(clone(model).set_output(transform="pandas")))
    assert list(again.transform(table["text"]).columns) == list(model.get_feature_names_out())
    with user_error("found a table, expected one of its columns, such as df['text']"):
        clone(model).set_output(transform="default").transform(table[["text"]])


def test_pipeline_that_ends_with_a_model_keeps_it(model, texts, labels):
    expected = model.encode(texts)
    ending = make_pipeline(model)
    np.testing.assert_allclose(ending.fit(texts, labels).transform(texts), expected, atol=1e-5)
    np.testing.assert_allclose(ending.fit_transform(texts, labels), expected, atol=1e-5)
    np.testing.assert_allclose(model.encode(texts), expected, atol=1e-5)


def test_model_that_is_not_frozen_learns_in_a_pipeline(texts, labels):
    model = Calibrated(_lengths)
    pipeline = make_pipeline(model, LogisticRegression())
    pipeline.fit(texts, labels)
    assert not model.maps
    pipeline.set_params(calibrated__frozen=False)
    pipeline.fit(texts, labels, calibrated__method="whitening")
    assert [one.kind for one in model.maps] == ["affine"]
    np.testing.assert_allclose(np.cov(model.transform(texts), rowvar=False), np.eye(3), atol=0.1)
    other = clone(model)
    assert not other.maps and not other.frozen and len(model.maps) == 1
    assert not pickle.loads(pickle.dumps(model)).frozen
    # A call of its own learns in any case.
    model.frozen = True
    assert model.fit(texts, method="sn").record.method == "sn"
    with user_error("depth: found a parameter of a pipeline's step, expected frozen or trunc"):
        model.set_params(depth=1)
