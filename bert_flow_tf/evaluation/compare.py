"""Compare calibrations on the same embeddings, as in the paper's Table 5."""

import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from bert_flow_tf.errors import ArgumentError, UserError, suggest
from bert_flow_tf.evaluation.protocols import METRICS, cosines, score_pairs
from bert_flow_tf.runs.settings import FIT_METHOD
from glow.embeddings import check_finite, negligible_channels

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

METHODS = ("none", "sn", "natsv-1", "natsv", "sn+natsv-1", "sn+natsv", "whitening", "whitening-256", "flow")
FIT_ON = {"all": ("train", "dev", "test"), "train": ("train",)}
# These methods choose k from 1 to _LARGEST_K on dev (Table 5).
TUNED, _LARGEST_K = ("natsv", "sn+natsv"), 20
_NAMES = ("none", "sn", *TUNED, "whitening", "flow")
_NUMBERED = re.compile(r"(natsv|sn\+natsv|whitening)-([1-9][0-9]*)")


def check_name(name: str) -> None:
    """Raise `ArgumentError` for an unknown calibration."""
    if name not in _NAMES and not _NUMBERED.fullmatch(name):
        known = ", ".join((*_NAMES, "natsv-K", "sn+natsv-K", "whitening-D"))
        raise ArgumentError(f"methods: unknown calibration {name!r}, expected some of {known}{suggest(name, _NAMES)}")


def is_method(name: str) -> bool:
    """True for a calibration that `BertFlow.fit` can learn."""
    return FIT_METHOD.fullmatch(name) is not None


class Split(NamedTuple):
    """Embeddings [2n, D], two neighbouring rows per pair, and gold scores [n]."""

    embeddings: np.ndarray
    gold: np.ndarray | None = None


def compare_calibrations(
    splits: Mapping[str, Split],
    *,
    metric: str = "spearman",
    methods: Sequence[str] = METHODS,
    fit_on: str = "all",
    seeds: Sequence[int] = (1, 2, 3),
    flow_options: dict[str, Any] | None = None,
    flow_rows: Callable[[int], np.ndarray] | None = None,
) -> dict[str, Any]:
    """Return each calibration's scores on test, as fields of `results.records.Calibrations`.

    A tuned method (`natsv`, `sn+natsv`) gets the k from 1 to 20 that is best on dev; the flow's scores are means over
    the seeds. Repeated sentences count each time, as in the original's training.

    Args:
      splits: `train`, `dev` and `test`; `test` needs gold scores, and so does `dev` for tuned methods.
      fit_on: "all" for all splits (the paper's "target"), or "train".
      flow_options: arguments of `glow.calibrator.FlowCalibrator`.
      flow_rows: function from a seed to the embeddings that the flow learns; None for those of `splits`.

    Raises:
      UserError: a method is unknown or cannot be fitted, an embedding is not finite, or a score is undefined.
    """
    for name, split in splits.items():
        check_finite(split.embeddings, f"embeddings of {name}", UserError)
    fit_rows = np.concatenate([splits[name].embeddings for name in FIT_ON[fit_on]])
    (n, width), rows = fit_rows.shape, list[dict[str, Any]]()
    # Import it here, because scikit-learn takes a second to load.
    from bert_flow_tf.evaluation.calibration import calibration

    for method in methods:
        logging.info("calibration: %s", method)
        started = time.monotonic()
        try:
            if method in TUNED:
                row = _tuned(method, fit_rows, splits, metric)
            elif method == "flow":
                row = _flow(flow_rows or (lambda seed: fit_rows), splits["test"], metric, seeds, flow_options or {})
            else:
                row = _scores(calibration(method).fit(fit_rows), splits["test"], metric, f"{method}, test")
        except ValueError as error:
            raise UserError(f"{method}: {error}") from error
        rows.append({"method": method, **row, "seconds": time.monotonic() - started})
    constant = np.flatnonzero(negligible_channels(fit_rows)).tolist()
    about = {"metric": metric, "fit_on": fit_on, "fit_rows": n, "width": width, "constant_channels": constant}
    return {**about, "seeds": list(seeds) if "flow" in methods else [], "rows": rows}


def _scores(fitted: "BaseEstimator", split: Split, metric: str, label: str) -> dict[str, float]:
    assert split.gold is not None, "only splits with gold scores are scored"
    a, b = (fitted.transform(rows) for rows in (split.embeddings[::2], split.embeddings[1::2]))
    return score_pairs(cosines(a, b, label), split.gold, metric, label)


def _tuned(method: str, fit_rows: np.ndarray, splits: Mapping[str, Split], metric: str) -> dict[str, Any]:
    from sklearn.pipeline import make_pipeline

    from bert_flow_tf.evaluation.calibration import NullTopSingularVectors, calibration

    first = calibration("sn" if method == "sn+natsv" else "none").fit(fit_rows)
    # Fit the largest k only, because smaller ones use its leading directions.
    largest = NullTopSingularVectors(min(_LARGEST_K, fit_rows.shape[1] - 1)).fit(first.transform(fit_rows))
    by_k = {k: make_pipeline(first, largest.truncated(k)) for k in range(1, largest.k + 1)}
    dev_by_k = {k: _scores(fitted, splits["dev"], metric, f"{method}-{k}, dev")[metric] for k, fitted in by_k.items()}
    k = max(dev_by_k, key=lambda k: dev_by_k[k])
    scores = _scores(by_k[k], splits["test"], metric, f"{method}-{k}, test")
    return {"k": k, "dev": dev_by_k[k], **scores, "dev_by_k": {str(k): score for k, score in dev_by_k.items()}}


def _flow(
    rows: Callable[[int], np.ndarray], test: Split, metric: str, seeds: Sequence[int], options: dict[str, Any]
) -> dict[str, Any]:
    from glow import FlowCalibrator

    by_seed = []
    for seed in seeds:
        u, started = rows(seed), time.monotonic()
        fitted = FlowCalibrator(seed=seed, **options).fit(u)
        seconds = {"fit_seconds": time.monotonic() - started}
        by_seed.append({"seed": seed, **_scores(fitted, test, metric, f"flow of seed {seed}, test"), **seconds})
    means = {name: statistics.fmean(run[name] for run in by_seed) for name in METRICS[metric]}
    values = [run[metric] for run in by_seed]
    std = statistics.stdev(values) if len(values) > 1 else None
    return {**means, "std": std, "median": statistics.median(values), "by_seed": by_seed}
