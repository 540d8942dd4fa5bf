"""Every calibration against the same embeddings of one task: the experiment of the paper's Table 5."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import make_pipeline

from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.evaluation.calibration import (
    EmbeddingError,
    Identity,
    NullTopSingularVectors,
    StandardNormalization,
    calibration,
    check_finite,
)
from bert_flow_tf.evaluation.calibration_names import MOST_K, TUNED, check_name
from bert_flow_tf.evaluation.protocols import METRICS, cosines, score_pairs
from glow.config import DEFAULT_CONFIG, GlowConfig
from glow.embeddings import negligible_channels

METHODS = ("none", "sn", "natsv-1", "natsv", "sn+natsv-1", "sn+natsv", "whitening", "whitening-256", "flow")
FIT_ON = {"all": ("train", "dev", "test"), "train": ("train",)}


class Split(NamedTuple):
    """Embeddings of one split's n pairs.

    Attributes:
      embeddings: float [2n, D], each pair's two sentences after one another.
      gold: [n] scores or labels; None where none are needed.
    """

    embeddings: np.ndarray
    gold: np.ndarray | None = None


def compare(
    splits: Mapping[str, Split],
    *,
    metric: str = "spearman",
    methods: Sequence[str] = METHODS,
    fit_on: str = "all",
    seeds: Sequence[int] = (1, 2, 3),
    flow_options: dict[str, Any] | None = None,
    on_row: Callable[[dict], None] | None = None,
) -> dict[str, Any]:
    """dict of each calibration's scores on the test split; ready for JSON.

    It holds `metric`, `fit_on`, `fit_rows` (a number), `width`, `constant_channels` (a list), `seeds`, and `rows`: a
    dict for each method, in the order of `methods`, with `method`, `seconds` (to fit and score) and `spearman` and
    `pearson`, or `auc`, all fractions of 1. Further

    - a tuned method (`natsv`, `sn+natsv`) has `k`, chosen by the metric on dev among 1 to 20 (fewer for embeddings that
      are not wider), the smallest of equals; `dev`, that k's score there; and `dev_by_k`. Only the chosen k meets the
      test split;
    - `flow` has its scores' means over the seeds, `std` (over n - 1; None for one seed) and `median` of the metric, and
      `by_seed`.

    Every sentence counts as often as it occurs, as in the original's training.

    Args:
      splits: `train`, `dev` and `test`; `test` needs gold scores, and so does `dev` for tuned methods.
      metric: "spearman" or "auc".
      methods: names, see `calibration.calibration`, tuned ones too.
      fit_on: key of `FIT_ON`: "all" splits, the paper's "target", or "train".
      seeds: of the flow.
      flow_options: further arguments of `glow.calibrator.FlowCalibrator`.
      on_row: called with each row's dict as soon as it is there.

    Raises:
      UserError: an unknown method or none, no seed for the flow, embeddings that are not finite or do not fit a method,
        or scores that are undefined.
    """
    methods = tuple(dict.fromkeys(methods))
    if not methods:
        raise ArgumentError("methods: found none, expected at least one")
    for method in methods:
        check_name(method)
    if "flow" in methods and not seeds:
        raise ArgumentError("seeds: found none, expected at least one for the flow")
    for name, split in splits.items():
        check_finite(split.embeddings[::2], f"embeddings of the first sentences of {name}")
        check_finite(split.embeddings[1::2], f"embeddings of the second sentences of {name}")
    fit_rows = np.concatenate([splits[name].embeddings for name in FIT_ON[fit_on]])
    rows, width = fit_rows.shape
    _check_shape(methods, rows, width, flow_options or {})
    results = {
        "metric": metric,
        "fit_on": fit_on,
        "fit_rows": rows,
        "width": width,
        "constant_channels": np.flatnonzero(negligible_channels(fit_rows)).tolist(),
        "seeds": list(seeds) if "flow" in methods else [],
        "rows": [],
    }
    for method in methods:
        started = time.monotonic()
        if method in TUNED:
            row = _tuned(method, fit_rows, splits, metric)
        elif method == "flow":
            row = _flow(fit_rows, splits["test"], metric, seeds, flow_options or {})
        else:
            row = _scores(calibration(method).fit(fit_rows), splits["test"], metric, f"{method}, test")
        results["rows"].append({"method": method, **row, "seconds": time.monotonic() - started})
        if on_row is not None:
            on_row(results["rows"][-1])
    return results


def _check_shape(methods: Sequence[str], rows: int, width: int, flow_options: dict[str, Any]) -> None:
    """Raises `UserError` for a method that cannot calibrate so many rows so wide, before time goes into the others."""
    for method in methods:
        kind, _, number = method.partition("-")
        most = width if kind == "whitening" else width - 1
        if number and int(number) > most:
            raise ArgumentError(
                f"methods: found {method} for embeddings of {width} dimensions, expected at most {most}"
            )
        fewest = 1 if kind == "none" else 2
        if kind == "whitening":
            fewest = int(number or width) + 1
        elif kind in TUNED:
            fewest = int(number or _largest_k(width)) + 2
        if rows < fewest:
            raise ArgumentError(f"methods: found {method} for {rows} embeddings, expected {fewest} or more")
    if "flow" in methods:
        least = 2 ** GlowConfig.load(flow_options.get("config", DEFAULT_CONFIG)).n_levels
        if width < least:
            raise ArgumentError(f"methods: found flow for embeddings of {width} dimensions, expected {least} or more")


def _largest_k(width: int) -> int:
    """The largest k that embeddings of that width allow, of those that a tuned method chooses among."""
    return min(MOST_K, max(width - 1, 1))


def _scores(fitted: Any, split: Split, metric: str, place: str) -> dict[str, float]:
    assert split.gold is not None, "only splits with gold scores are scored"
    a, b = (fitted.transform(rows) for rows in (split.embeddings[::2], split.embeddings[1::2]))
    return score_pairs(cosines(a, b, place), split.gold, metric, place)


def _tuned(method: str, fit_rows: np.ndarray, splits: Mapping[str, Split], metric: str) -> dict[str, Any]:
    first = (StandardNormalization() if method == "sn+natsv" else Identity()).fit(fit_rows)
    # The top k directions are the first k of the largest set.
    most = NullTopSingularVectors(_largest_k(fit_rows.shape[1])).fit(first.transform(fit_rows))
    nulled = {k: make_pipeline(first, most.truncated(k)) for k in range(1, most.k + 1)}
    dev_by_k = {k: _scores(fitted, splits["dev"], metric, f"{method}-{k}, dev")[metric] for k, fitted in nulled.items()}
    k = max(dev_by_k, key=lambda k: dev_by_k[k])
    scores = _scores(nulled[k], splits["test"], metric, f"{method}-{k}, test")
    return {"k": k, "dev": dev_by_k[k], **scores, "dev_by_k": {str(k): score for k, score in dev_by_k.items()}}


def _flow(
    fit_rows: np.ndarray, test: Split, metric: str, seeds: Sequence[int], options: dict[str, Any]
) -> dict[str, Any]:
    by_seed = []
    for seed in seeds:
        started = time.monotonic()
        try:
            fitted = calibration("flow", seed=seed, **options).fit(fit_rows)
        except ValueError as error:
            raise EmbeddingError(f"flow: {error}") from error
        seconds = {"fit_seconds": time.monotonic() - started}
        by_seed.append({"seed": seed, **_scores(fitted, test, metric, f"flow of seed {seed}, test"), **seconds})
    means = {name: statistics.fmean(run[name] for run in by_seed) for name in METRICS[metric]}
    values = [run[metric] for run in by_seed]
    std = statistics.stdev(values) if len(values) > 1 else None
    return {**means, "std": std, "median": statistics.median(values), "by_seed": by_seed}
