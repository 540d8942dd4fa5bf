"""Every method as a scikit-learn transformer."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.estimator_checks import check_estimator

from bert_flow_tf.calibration import flow_training
from bert_flow_tf.calibration.methods import _KINDS
from bert_flow_tf.model.transformer import EmbeddingCalibrator

NUMBERS = {"soft-whitening": "soft-whitening-0.1", "natsv": "natsv-1"}
METHODS = [NUMBERS.get(name, name) for name in _KINDS]


@pytest.fixture
def few_eager_steps(small_default_flow, monkeypatch):
    """Few steps, without tracing, which takes longer."""
    monkeypatch.setattr(flow_training, "DEFAULT_STEPS", 2)
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", [*METHODS, "auto-1", "sn+natsv-1"])
def test_scikit_learns_own_checks_pass(method, few_eager_steps):
    check_estimator(EmbeddingCalibrator(method), on_skip=None)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("shape", [(450, 384), (20, 1)])
def test_whitening_needs_one_row_more_than_channels(shape):
    rows = np.random.default_rng(0).normal(size=shape)
    found = EmbeddingCalibrator("whitening").fit_transform(rows)
    covariance = np.atleast_2d(np.cov(found, rowvar=False))
    np.testing.assert_allclose(covariance, np.eye(shape[1]), atol=1e-3)
    with pytest.raises(ValueError, match="found 384 different sentences for whitening"):
        EmbeddingCalibrator("whitening").fit(np.random.default_rng(0).normal(size=(384, 384)))
