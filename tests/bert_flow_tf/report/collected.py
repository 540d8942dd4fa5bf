"""A small report's dict, as `results.collect` gives it, with something in every section."""

import copy

ENCODER = {"name": "demo", "handle": "demo", "fingerprint": "d" * 64, "fine_tuning": None}
ANALYSED = ENCODER | {"pooling": "avg", "max_seq_length": 64}
FLOW = {
    "config": "config_l3_d3_w32",
    "learned_on": "STS-B",
    "flags": {"num_train_epochs": 1.0, "flow_learning_rate": 1e-3, "use_full_for_training": 1, "flow_ddi": False},
    "begun": False,
    "pairs": 8628,
}
PLOTS = {
    "lexical-1": b'<svg xmlns="http://www.w3.org/2000/svg" width="90pt" height="60pt"><script>alert(1)</script></svg>'
}


def summary(*values: float) -> dict:
    """Mean, deviation and median of one score, or of three."""
    ends = {"mean_x100": sum(values) / len(values), "median_x100": sorted(values)[len(values) // 2]}
    return ends | {"std_x100": 1.0 if len(values) > 1 else None, "n": len(values), "values_x100": list(values)}


def score(name: str, *values: float, **changes) -> dict:
    """One of a report's `scores`: of an encoder as it is, with nothing to compare with."""
    row = {
        "source": name,
        "name": name,
        "encoder": ENCODER,
        "pooling": "cls",
        "max_seq_length": 64,
        "low_dim": None,
        "flow": None,
        "seeds": [],
        "task": "STS-B",
        "split": "test",
        "metric": "spearman",
        "protocol": None,
        "pairs": 1379,
        "this_run": summary(*values),
        "subsets": {},
        "paper_seeds": None,
    }
    for other in ("baseline", "paper", "original"):
        row |= {other: None, f"difference_from_{other}_x100": None}
    return row | changes


def report(**changes) -> dict:
    """A dict of a whole report."""
    flow = score(
        "runs",
        *(79.0, 80.0, 84.0),
        flow=FLOW,
        seeds=[1, 2, 3],
        baseline=summary(81.54),
        difference_from_baseline_x100=-0.54,
        paper={"row": "BERT-base-flow", "mean_x100": 70.72, "source": "README"},
        difference_from_paper_x100=10.28,
        original={"mean_x100": 80.57, "values_x100": [80.57], "seeds": [1234]},
        difference_from_original_x100=0.43,
    )
    sets = {"subsets": {"MSRpar": 65.43, "MSRvid": 80.0}, "task": "STS-12", "protocol": "wmean", "pairs": 3108}
    gold = {"value_x100": -24.55, "paper_x100": -24.61, "difference_x100": 0.06}
    alone = {"value_x100": 100.0, "paper_x100": None, "difference_x100": None}
    undefined = alone | {"value_x100": None}
    calibrated = {"k": None, "dev_x100": None, "seeds": [], "difference_from_none_x100": None, "original": None}
    calibrated |= {"paper": None, "difference_from_paper_x100": None, "difference_from_original_x100": None}
    keys = ("constant_channels", "mean_cosine", "mean_share", "top_share", "centred_top_share")
    measures = dict.fromkeys((*keys, "participation_ratio", "effective_rank", "partition_ratio"), 0.25)
    source = {
        "source": "runs",
        "kind": "run",
        "path": "/data/runs",
        "encoder": ENCODER,
        "pooling": ["cls"],
        "max_seq_length": 64,
        "flow": FLOW,
        "seeds": [1, 2, 3],
        "protocol": "cosine",
        "data": [{"task": "STS-B", "split": "test", "pairs": 1379, "path": "glue/STS-B", "digest": "b" * 64}],
        "versions": {"tensorflow": "2.19.1"},
    }
    nothing = {"pooling": [], "max_seq_length": None, "flow": None, "seeds": [], "protocol": None, "data": []}
    record = {
        "format_version": 2,
        "made_by": "bert-flow report",
        "title": "Results",
        "date": "2020-09-13",
        "paper": "Li et al.",
        "original": {"code": "bohanli/BERT-flow", "commit": "7fa8f6d", "versions": {"tensorflow": "1.15.5"}},
        "sources": [source, source | nothing | {"source": "words", "kind": "words", "encoder": None, "versions": {}}],
        "scores": [flow, score("sets", 70.0, **sets), score("plain", 81.54)],
        "calibrations": [
            {
                "source": "calibration.json",
                "encoder": ANALYSED,
                "task": "STS-B",
                "split": "test",
                "pairs": 1379,
                "metric": "spearman",
                "fit_on": "all",
                "flow_config": "config_l3_d3_w32",
                "rows": [
                    calibrated | summary(73.08) | {"method": "none", "paper": {"row": "BERT-base", "mean_x100": 47.29}},
                    calibrated | summary(75.0) | {"method": "natsv", "k": 6, "dev_x100": 80.0},
                    calibrated | summary(78.4, 78.5, 78.6) | {"method": "flow", "seeds": [1, 2, 3]},
                ],
            }
        ],
        "lexical": [
            {
                "source": "lexical",
                "encoder": ANALYSED,
                "task": "STS-B",
                "split": "dev",
                "pairs": 1500,
                "rows": [{"name": "Gold similarity", "edit distance": gold, "gold": alone}],
                "close": {
                    "max_distance": 4,
                    "pairs": 130,
                    "rows": [{"name": "Gold similarity", "edit distance": undefined, "gold": alone}],
                    "undefined": ["all 2 predictions are 5"],
                },
            }
        ],
        "words": [
            {
                "source": "words",
                "encoder": ENCODER,
                "pieces": 30522,
                "ranked_words": 21000,
                "frequencies": "wordfreq, English",
                "bins": [{"first": 1, "stop": 100, "words": 99}, {"first": 100, "stop": 5000, "words": 4900}],
                "rows": [{"measure": "mean ℓ2 norm", "values": [0.9, None], "paper": [0.95, 1.04]}],
            }
        ],
        "isotropy": [
            {
                "source": "isotropy",
                "encoder": ANALYSED,
                "task": "STS-B",
                "split": "dev",
                "sentences": 3000,
                "measures": {"without flow": measures | {"constant_channels": 3}, "standard normal": measures},
                "bits_per_dim": {"diagonal Gaussian": -1.25},
            }
        ],
        "trainings": [
            {
                "source": "runs",
                "encoder": ENCODER,
                "pooling": "cls",
                "flow": FLOW,
                "learned_on": "STS-B",
                "seed": 1234,
                "pairs": 8628,
                "steps": 269,
                "seconds": 12.5,
                "on_dev": {"eval_loss_flow": -0.68, "global_step": 269.0},
            }
        ],
        "figures": {"seeds-1": "Every seed.", "calibration-1": "Every calibration.", "lexical-1": "Every pair."},
    }
    return copy.deepcopy(record | changes)
