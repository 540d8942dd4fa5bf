"""Any calibration of arrays as a scikit-learn transformer."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.model.any_encoder import calibrate_array


class EmbeddingCalibrator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn a calibration of embeddings by its method's name.

        >>> embeddings = np.random.default_rng(0).normal(size=[500, 8])
        >>> z = EmbeddingCalibrator("whitening").fit_transform(embeddings)
        >>> bool(np.allclose(np.cov(z, rowvar=False), np.eye(8), atol=0.2))
        True

    For the flow alone, `glow.FlowCalibrator` has all of its settings and its density.

    Args:
      method: as in `BertFlow.fit`.
      normalize: True to scale the results to norm 1.

    Attributes:
      calibrated_: `model.any_encoder.Calibrated`, which saves and exports.
    """

    def __init__(self, method: str = "whitening", normalize: bool = False) -> None:
        self.method = method
        self.normalize = normalize

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: ArrayLike, y: None = None) -> "EmbeddingCalibrator":
        """Learn on `X` [n, D]; `y` is ignored.

        Raises:
          ValueError: a value is not finite, or the method cannot learn from these rows.
        """
        rows = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
        try:
            settings = FitSettings(method=self.method)
            self.calibrated_ = calibrate_array(rows, settings, normalize=self.normalize)
        except UserError as error:
            # A search over parameters goes on after the errors that scikit-learn's own raise.
            n, width = rows.shape
            raise ValueError(f"{error} (n_samples = {n}, n_features = {width})") from error
        return self

    @property
    def _n_features_out(self) -> int:
        # scikit-learn names the columns by this number.
        return self.calibrated_.calibration.output_size

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return calibrated embeddings, float32 [n, d]."""
        check_is_fitted(self, "calibrated_")
        return self.calibrated_.transform(validate_data(self, X, dtype=np.float32, reset=False))
