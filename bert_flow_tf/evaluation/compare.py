"""Compare calibrations on the same embeddings, as in the paper's Table 5."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from absl import logging
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.calibration import NullTopSingularVectors, calibration
from bert_flow_tf.evaluation.methods import TUNED, CalibrationScores
from bert_flow_tf.evaluation.protocols import cosines, score_pairs
from glow.embeddings import check_finite

_LARGEST_K = 20


class Split(NamedTuple):
    """Embeddings [2n, D], two neighbouring rows per pair, and gold scores [n]."""

    name: str
    embeddings: np.ndarray
    gold: np.ndarray
    metric: str = "spearman"

    def score(self, fitted: BaseEstimator, method: str) -> dict[str, float]:
        """Return the scores of calibrated embeddings by metric."""
        a, b = (fitted.transform(rows) for rows in (self.embeddings[::2], self.embeddings[1::2]))
        label = f"{method}, {self.name}"
        return score_pairs(cosines(a, b, label), self.gold, self.metric, label)


def compare_calibrations(
    methods: Sequence[str],
    fit_rows: np.ndarray,
    dev: Split,
    test: Split,
    seeds: Sequence[int],
    learn_flow: Callable[[int], BaseEstimator],
) -> list[CalibrationScores]:
    """Return each calibration's scores on test.

    A tuned method (`natsv`, `sn+natsv`) gets the k from 1 to 20 that is best on dev; the flow's scores are means over
    the seeds. Repeated sentences count each time, as in the original's training.

    Args:
      fit_rows: embeddings [n, D] to fit on; those of all splits for the paper's "target".
      learn_flow: function from a seed to a fitted `glow.FlowCalibrator`.

    Raises:
      UserError: a method is unknown or cannot be fitted, an embedding is not finite, or a score is undefined.
    """
    check_finite(fit_rows, "embeddings", UserError)
    found = []
    for method in methods:
        logging.info("calibration: %s", method)
        started = time.monotonic()
        try:
            if method in TUNED:
                row = _tuned(method, fit_rows, dev, test)
            elif method == "flow":
                row = _flow({seed: test.score(learn_flow(seed), f"flow of seed {seed}") for seed in seeds})
            else:
                row = CalibrationScores(method=method, by_metric=test.score(calibration(method).fit(fit_rows), method))
        except ValueError as error:
            raise UserError(f"{method}: {error}") from error
        found.append(msgspec.structs.replace(row, seconds=time.monotonic() - started))
    return found


def _tuned(method: str, fit_rows: np.ndarray, dev: Split, test: Split) -> CalibrationScores:
    first = calibration("sn" if method == "sn+natsv" else "none").fit(fit_rows)
    # Fit the largest k only, because smaller ones use its leading directions.
    largest = NullTopSingularVectors(min(_LARGEST_K, fit_rows.shape[1] - 1)).fit(first.transform(fit_rows))
    by_k = {k: make_pipeline(first, largest.truncated(k)) for k in range(1, largest.k + 1)}
    dev_by_k = {k: dev.score(fitted, f"{method}-{k}")[dev.metric] for k, fitted in by_k.items()}
    k = max(dev_by_k, key=lambda k: dev_by_k[k])
    return CalibrationScores(method=method, by_metric=test.score(by_k[k], f"{method}-{k}"), k=k, dev_by_k=dev_by_k)


def _flow(by_seed: dict[int, dict[str, float]]) -> CalibrationScores:
    metrics = next(iter(by_seed.values()))
    means = {metric: statistics.fmean(scores[metric] for scores in by_seed.values()) for metric in metrics}
    return CalibrationScores(method="flow", by_metric=means, by_seed=by_seed)
