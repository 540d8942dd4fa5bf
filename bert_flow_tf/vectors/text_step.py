"""A sentence embedding model as an estimator of scikit-learn."""

import copy
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from bert_flow_tf.common.errors import ArgumentError

Self = TypeVar("Self", bound="TextStep")
_ARRAYS = "default"


class TextStep:
    """A step of scikit-learn's pipelines, from texts to embeddings.

    It has the methods of scikit-learn's base classes, which take a second to import.

    A subclass defines `encode`, and `fit` if it can learn.

    Attributes:
      frozen: True, the default, if the `fit` of a pipeline leaves the model as it is. With False,
        it learns a calibration, by the arguments of `fit`, which a pipeline passes on.
    """

    frozen = True
    _container: str | None = None  # of `set_output`; None for scikit-learn's own setting

    def fit(self: Self, X: Iterable[str], y: Any = None) -> Self:
        """Return the model, which has learned already."""
        return self

    def fit_transform(self, X: Iterable[str], y: Any = None, **options: Any) -> Any:
        """Return `fit(X, y, **options).transform(X)`."""
        return self.fit(X, y, **options).transform(X)

    def transform(self: Any, X: Iterable[str]) -> Any:
        """Return `encode(X)`, as a step of a scikit-learn pipeline.

        It is an array, or a table after `set_output` or `sklearn.set_config`.
        """
        return self._contained(X, self.encode)

    def _contained(self, X: Any, transform: Any) -> Any:
        """Return `transform(X)` as the container that the user wants."""
        container = self._container
        if container is None and "sklearn" in sys.modules:
            import sklearn

            container = sklearn.get_config()["transform_output"]
        if container in (None, _ARRAYS):
            return transform(X)
        from sklearn.preprocessing import FunctionTransformer

        names = lambda *_: self.get_feature_names_out()  # noqa: E731
        step = FunctionTransformer(transform, feature_names_out=names)
        return step.set_output(transform=container).transform(X)

    def set_output(self: Self, *, transform: str | None = None) -> Self:
        """Let `transform` return "pandas" or "polars" tables, or arrays by "default"."""
        if transform is not None:
            self._container = transform
        return self

    def get_feature_names_out(self: Any, input_features: Any = None) -> np.ndarray:
        """Return the channels' names, such as `bertflow0`."""
        name = type(self).__name__.lower()
        return np.array([f"{name}{i}" for i in range(self.embedding_size)], object)

    def get_params(self: Any, deep: bool = True) -> dict[str, Any]:
        """Return what a grid search may change: `frozen` and `truncate_dim`."""
        return {"frozen": self.frozen, "truncate_dim": self.truncate_dim}

    def set_params(self: Self, **params: Any) -> Self:
        """Set some of `get_params`."""
        for name, value in params.items():
            if name not in self.get_params():
                expected = f"expected {' or '.join(self.get_params())}"
                raise ArgumentError(f"{name}: found a parameter of a pipeline's step, {expected}")
            setattr(self, name, value)
        return self

    @property
    def step_settings(self) -> dict[str, Any]:
        """The attributes of a step, which copies and pickles keep."""
        return {"frozen": self.frozen, "_container": self._container}

    def unfitted(self: Self) -> Self:
        """Return a copy without what scikit-learn's `fit` would learn."""
        return copy.copy(self)

    def __sklearn_clone__(self: Self) -> Self:
        return copy.copy(self) if self.frozen else self.unfitted()

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            requires_fit=False,
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )
