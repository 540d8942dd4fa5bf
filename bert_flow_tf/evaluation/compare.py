"""Every calibration against the same embeddings of one task: the experiment of the paper's Table 5."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.calibration import (
    TUNED,
    TUNED_K,
    EmbeddingError,
    Identity,
    NullTopSingularVectors,
    StandardNormalization,
    calibration,
    check_finite,
    check_name,
    negligible_channels,
)
from bert_flow_tf.evaluation.protocols import METRICS, cosines, score_pairs
from glow.config import DEFAULT_CONFIG, GlowConfig

METHODS = (
    "none",
    "sn",
    "natsv-1",
    "natsv",
    "sn+natsv-1",
    "sn+natsv",
    "whitening",
    "whitening-256",
    "flow",
)
FIT_ON = {"all": ("train", "dev", "test"), "train": ("train",)}


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """The embeddings of one split's pairs.

    Attributes:
      a, b: float [n, D], the first sentences' and the second ones'.
      gold: [n] scores or labels; None where none are needed.
    """

    a: np.ndarray
    b: np.ndarray
    gold: np.ndarray | None = None

    def rows(self) -> np.ndarray:
        """Both sentences of each pair after one another, [2n, D]."""
        return np.stack([self.a, self.b], axis=1).reshape(-1, self.a.shape[1])


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
      splits: dict of `Split` by name: `train`, `dev`, `test`. `test` needs gold scores, and `dev` for tuned methods.
      metric: "spearman" or "auc".
      methods: names, see `calibration.calibration`, tuned ones too.
      fit_on: key of `FIT_ON`: "all" splits, the paper's "target", or "train".
      seeds: of the flow.
      flow_options: dict of further arguments of `glow.calibrator.FlowCalibrator`.
      on_row: function that is given each row's dict as soon as it is there.

    Raises:
      UserError: an unknown method or none, no seed for the flow, embeddings that are not finite or do not fit a method,
        or scores that are undefined.
    """
    methods = tuple(dict.fromkeys(methods))
    if not methods:
        raise UserError("--methods: found none, expected at least one")
    for method in methods:
        check_name(method)
    if "flow" in methods and not seeds:
        raise UserError("--seeds: found none, expected at least one for the flow")
    for name, split in splits.items():
        check_finite(split.a, f"embeddings of the first sentences of {name}")
        check_finite(split.b, f"embeddings of the second sentences of {name}")
    fit_rows = np.concatenate([splits[name].rows() for name in FIT_ON[fit_on]])
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
            raise UserError(f"--methods: found {method} for embeddings of {width} dimensions, expected at most {most}")
        if rows < (fewest := _fewest_rows(kind, number, width)):
            raise UserError(f"--methods: found {method} for {rows} embeddings, expected {fewest} or more")
    if "flow" in methods:
        least = 2 ** GlowConfig.load(flow_options.get("config", DEFAULT_CONFIG)).n_levels
        if width < least:
            raise UserError(f"--methods: found flow for embeddings of {width} dimensions, expected {least} or more")


def _fewest_rows(kind: str, number: str, width: int) -> int:
    """How many rows `fit` of a kind of calibration asks for."""
    if kind == "whitening":
        return int(number or width) + 1
    if kind in TUNED:
        return int(number or max((k for k in TUNED_K if k < width), default=1)) + 2
    return 1 if kind == "none" else 2


def _scores(fitted: Any, split: Split, metric: str, place: str) -> dict[str, float]:
    assert split.gold is not None, "only splits with gold scores are scored"
    similarities = cosines(fitted.transform(split.a), fitted.transform(split.b), place)
    return score_pairs(similarities, split.gold, metric, place)


def _tuned(method: str, fit_rows: np.ndarray, splits: Mapping[str, Split], metric: str) -> dict[str, Any]:
    first = (StandardNormalization() if method == "sn+natsv" else Identity()).fit(fit_rows)
    candidates = [k for k in TUNED_K if k < fit_rows.shape[1]]
    # The directions for fewer are the first of those for most.
    most = NullTopSingularVectors(max(candidates, default=1)).fit(first.transform(fit_rows))
    nulled = {k: make_pipeline(first, most.truncated(k)) for k in candidates}
    dev_by_k = {k: _scores(fitted, splits["dev"], metric, f"{method}-{k}, dev")[metric] for k, fitted in nulled.items()}
    k = max(dev_by_k, key=lambda k: dev_by_k[k])
    by_k = {str(k): score for k, score in dev_by_k.items()}
    return {
        "k": k,
        "dev": dev_by_k[k],
        **_scores(nulled[k], splits["test"], metric, f"{method}-{k}, test"),
        "dev_by_k": by_k,
    }


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
    return {
        **means,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "median": statistics.median(values),
        "by_seed": by_seed,
    }
