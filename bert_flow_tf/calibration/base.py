"""The base of an encoder with a calibration."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from bert_flow_tf.calibration import learning as fitting
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.calibration.thresholds import threshold
from bert_flow_tf.calibration.witness import Compared
from bert_flow_tf.records import Threshold, Verdict
from bert_flow_tf.settings import chosen, suggesting_arguments

Self = TypeVar("Self", bound="CalibratedEncoder")
DEFAULT_METHODS = ("whitening", "soft-whitening-0.1", "flow")


class CalibratedEncoder:
    """An encoder and its calibration: learn, compare, choose a cosine.

    A subclass defines how texts are encoded, with the calibration and before it.

    Attributes:
      history_: `calibration.learning.History` of the last `fit`; after loading, its `verdict`.
    """

    history_: fitting.History | Verdict | None = None
    encode: Callable[..., Any]
    encode_query: Callable[..., Any]
    encode_document: Callable[..., Any]
    encode_pooled: Callable[..., np.ndarray]

    def reduce(self, z: np.ndarray) -> np.ndarray:
        """Return what follows the calibration of [n, D]; here, nothing."""
        return z

    def check_method(self, method: str) -> None:
        """Raise `ArgumentError` for a method that does not fit the encoder."""

    def _set_fitted(self: Self, fitted: fitting.Fitted) -> Self:
        raise NotImplementedError

    @suggesting_arguments
    def fit(
        self: Self,
        sentences: Iterable[str],
        y: None = None,
        *,
        method: str = FitSettings.method,
        pairs: fitting.Pairs | None = None,
        flow_model_config: str | os.PathLike = FitSettings.flow_model_config,
        epochs: float | None = FitSettings.epochs,
        batch_size: int = FitSettings.batch_size,
        learning_rate: float = FitSettings.learning_rate,
        seed: int = FitSettings.seed,
        dev_fraction: float = FitSettings.dev_fraction,
        show_progress_bar: bool | None = None,
    ) -> Self:
        """Learn a new calibration on sentences without labels; return the model.

        `glow.FlowCalibrator` learns on their embeddings, computed once without dropout, as
        `run_siamese --flow=1 --flow_loss=1 --num_examples=0 --cache_embeddings` does. The model
        does not change if an error is raised.

        Args:
          sentences: a repeated sentence counts each time.
          y: ignored; scikit-learn's pipelines pass it.
          method: "flow", "whitening[-D]", "soft-whitening-E", "sn", "natsv-K" or "sn+natsv-K", see
            `calibration.affine.affine_calibration`.
          pairs: first sentences, second sentences and their gold scores, for `history_.judgement`.
          flow_model_config: name of a shipped configuration, or a JSON file.
          epochs: None for 1, or enough for 300 steps, ended where held-out sentences are most
            likely.
          batch_size: sentences per step.
          learning_rate: constant.
          seed: of order and initial weights.
          dev_fraction: share of distinct sentences held out, see `calibration.learning.hold_out`.
          show_progress_bar: None shows it on a terminal only.

        Raises:
          UserError: there are fewer sentences than `batch_size`, an argument is invalid, or a loss
            is not finite.
        """
        flow_model_config = os.fspath(flow_model_config)
        self.check_method(method)
        fitted = fitting.fit_sentences(
            self.encode_pooled,
            sentences,
            chosen(FitSettings, locals()),
            pairs,
            reduce=self.reduce,
            show_progress_bar=show_progress_bar,
        )
        return self._set_fitted(fitted)

    def compare(
        self,
        sentences: Iterable[str],
        methods: Sequence[str] = DEFAULT_METHODS,
        *,
        pairs: fitting.Pairs | None = None,
        settings: FitSettings | None = None,
        show_progress_bar: bool | None = None,
    ) -> list[Compared]:
        """Learn several calibrations of the encoder, and change none; return their figures.

        The first row is the encoder as it is; `calibration.witness.recommended` picks a row. The
        model's own calibration is ignored.

        Args:
          pairs: first sentences, second sentences and their gold scores, which may be 0 and 1.
          settings: the flow's; `method` is ignored.

        The errors are those of `fit`.
        """
        return fitting.compare(
            self.encode_pooled,
            sentences,
            methods,
            settings or FitSettings(),
            pairs,
            reduce=self.reduce,
            show_progress_bar=show_progress_bar,
        )

    def threshold(self, sentences: Iterable[str], false_matches: float = 1e-3) -> Threshold:
        """Return the cosine that few random pairs exceed, see `calibration.thresholds`."""
        return threshold(self.encode(list(dict.fromkeys(sentences))), false_matches)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return the lists of numbers that LangChain and others ask for."""
        return self.encode_document(list(texts)).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return a query's embedding as a list of numbers."""
        return self.encode_query(text).tolist()
