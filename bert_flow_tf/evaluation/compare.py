"""Every calibration against the same embeddings of one task: the experiment of the paper's Table 5."""

import dataclasses
import statistics
import time

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
from bert_flow_tf.evaluation.paper import paper_tables
from bert_flow_tf.evaluation.protocols import METRICS, cosines, score_pairs
from bert_flow_tf.evaluation.text_table import aligned
from glow.config import GlowConfig

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
DEFAULT_FLOW = "config_l3_d3_w32"
FIT_ON = {"all": ("train", "dev", "test"), "train": ("train",)}
# Method -> row of the paper's Table 5; the k of the tuned ones was chosen on dev there too.
_PAPER_ROWS = {
    "none": "BERT-base",
    "sn": "+ SN",
    "natsv-1": "+ NATSV (k=1)",
    "natsv": "+ NATSV (k=10)",
    "sn+natsv-1": "+ SN + NATSV (k=1)",
    "sn+natsv": "+ SN + NATSV (k=6)",
    "flow": "BERT-base-flow (target)",
}


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
    splits, *, metric="spearman", methods=METHODS, fit_on="all", seeds=(1, 2, 3), flow_options=None, on_row=None
):
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
    _check_shape(methods, *fit_rows.shape, flow_options or {})
    results = {
        "metric": metric,
        "fit_on": fit_on,
        "fit_rows": len(fit_rows),
        "width": fit_rows.shape[1],
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


def _check_shape(methods, rows, width, flow_options):
    """Raises `UserError` for a method that cannot calibrate so many rows so wide, before time goes into the others."""
    for method in methods:
        kind, _, number = method.partition("-")
        most = width if kind == "whitening" else width - 1
        if number and int(number) > most:
            raise UserError(f"--methods: found {method} for embeddings of {width} dimensions, expected at most {most}")
        if rows < (fewest := _fewest_rows(kind, number, width)):
            raise UserError(f"--methods: found {method} for {rows} embeddings, expected {fewest} or more")
    if "flow" in methods:
        least = 2 ** GlowConfig.load(flow_options.get("config", DEFAULT_FLOW)).n_levels
        if width < least:
            raise UserError(f"--methods: found flow for embeddings of {width} dimensions, expected {least} or more")


def _fewest_rows(kind, number, width):
    """How many rows `fit` of a kind of calibration asks for."""
    if kind == "whitening":
        return int(number or width) + 1
    if kind in TUNED:
        return int(number or max((k for k in TUNED_K if k < width), default=1)) + 2
    return 1 if kind == "none" else 2


def _scores(fitted, split, metric, place):
    similarities = cosines(fitted.transform(split.a), fitted.transform(split.b), place)
    return score_pairs(similarities, split.gold, metric, place)


def _tuned(method, fit_rows, splits, metric):
    first = (StandardNormalization() if method == "sn+natsv" else Identity()).fit(fit_rows)
    candidates = [k for k in TUNED_K if k < fit_rows.shape[1]]
    # The directions for fewer are the first of those for most.
    most = NullTopSingularVectors(max(candidates, default=1)).fit(first.transform(fit_rows))
    nulled = {k: make_pipeline(first, most.truncated(k)) for k in candidates}
    dev_by_k = {k: _scores(fitted, splits["dev"], metric, f"{method}-{k}, dev")[metric] for k, fitted in nulled.items()}
    k = max(dev_by_k, key=dev_by_k.get)
    by_k = {str(k): score for k, score in dev_by_k.items()}
    return {
        "k": k,
        "dev": dev_by_k[k],
        **_scores(nulled[k], splits["test"], metric, f"{method}-{k}, test"),
        "dev_by_k": by_k,
    }


def _flow(fit_rows, test, metric, seeds, options):
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


def add_paper_rows(results):
    """The results of `compare` on the STS Benchmark, fitted on all splits, with Table 5's row in each row as `paper`.

    `paper` is a dict of `row`, its name there, and `spearman_x100`; None for a calibration that the paper has not.
    """
    figures = paper_tables()["table5_calibration_baselines"]["rows"]
    rows = []
    for row in results["rows"]:
        name = _PAPER_ROWS.get(row["method"])
        rows.append(row | {"paper": name and {"row": name, "spearman_x100": figures[name]}})
    return results | {"rows": rows}


def format_table(results) -> str:
    """The results of `compare` as an aligned table, scores times 100; the paper's rows beside, where there are any."""
    names = METRICS[results["metric"]]
    has_paper = any("paper" in row for row in results["rows"])
    header = ["calibration", *(name.upper() if name == "auc" else name.capitalize() for name in names)]
    header += ["k", "dev", "std", "seconds", *(["paper", "its row"] if has_paper else [])]
    lines = [header]
    for row in results["rows"]:
        paper = row.get("paper")
        cells = [row["method"], *(_x100(row[name]) for name in names)]
        cells += [str(row.get("k", "")), _x100(row.get("dev")), _x100(row.get("std")), f"{row['seconds']:.1f}"]
        if has_paper:
            cells += [f"{paper['spearman_x100']:.2f}", paper["row"]] if paper else ["", ""]
        lines.append(cells)
    # Names to the left, figures to the right.
    return aligned(lines, left=(0, len(header) - 1) if has_paper else (0,))


def _x100(score):
    return "" if score is None else f"{100 * score:.2f}"
