"""Compare measures without labels with labelled pairs, over many embedding spaces.

    python -m benchmarks.witness --bounds ENCODER … --tests ENCODER … --glue_dir GLUE --senteval_dir
    SENTEVAL

learns each calibration on sentences of a text, as `fit` does, and measures it on `fit`'s held-out
sentences and on labelled pairs of other sentences. Each case is appended to the file `--cases`; a
second run skips the cases there. Then the command prints how often the claims are right, on the
encoders that set the bounds and on those that test them.
"""

import argparse
import functools
import itertools
import json
import pathlib
import random
import sys

import numpy as np

from bert_flow_tf import BertFlow
from bert_flow_tf.calibration import learning
from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.calibration.witness import Witness, witness
from bert_flow_tf.common.errors import exit_status
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks.scored_tasks import read_task
from bert_flow_tf.vectors.isotropy import measure_isotropy
from bert_flow_tf.vectors.metrics import spearman
from bert_flow_tf.vectors.similarities import cosines_of_pairs

METHODS = ("flow", "whitening", "soft-whitening-0.1", "soft-whitening-1")
Pairs = list[tuple[str, str, float]]


def texts(glue_dir: str, senteval_dir: str) -> dict[str, tuple[Pairs, Pairs]]:
    """Return each text's pairs, to learn on and to judge by."""
    genres: dict[str, Pairs] = {}
    for split, columns in (
        ("train", (1, 7, 8, 9)),
        ("dev", (1, 7, 8, 9)),
        ("sts-test.csv", (0, 5, 6, 4)),
    ):
        path = pathlib.Path(glue_dir, "STS-B", split if "." in split else f"{split}.tsv")
        for line in path.read_text(encoding="utf-8").splitlines():
            genre, a, b, score = (line.split("\t")[column] for column in columns)
            if score != "score":
                genres.setdefault(genre.removeprefix("main-").rstrip("s"), []).append(
                    (a, b, float(score))
                )

    def scored(parts: list) -> Pairs:
        rows = (
            zip(one.sentences_a, one.sentences_b, map(float, one.labels), strict=True)
            for one in parts
        )
        return list(itertools.chain.from_iterable(rows))

    sick = scored(
        [
            read_task("sickr", glue_dir=glue_dir, split=one).subsets["sickr"]
            for one in ("train", "test")
        ]
    )
    templates = scored(
        [
            read_task("stsb", glue_dir=str(sample_glue_dir()), split=one).subsets["stsb"]
            for one in ("train", "dev", "test")
        ]
    )
    same = {
        "STS-B": [*itertools.chain.from_iterable(genres.values())],
        "SICK": sick,
        "STS12": scored([*read_task("sts12", senteval_dir=senteval_dir).subsets.values()]),
        "templates": templates,
    }
    return {name: (pairs, pairs) for name, pairs in same.items()} | {
        "captions to news": (genres["caption"], genres["new"])
    }


def divided(name: str, learned_from: Pairs, judged_by: Pairs) -> tuple[list[str], Pairs]:
    """Return sentences to learn on, and pairs of other sentences."""
    draw, pairs = random.Random(name), [(a.strip(), b.strip(), score) for a, b, score in judged_by]
    draw.shuffle(pairs)
    judged = pairs[: min(600, 45 * len(pairs) // 100)]
    others = {sentence for pair in judged for sentence in pair[:2]}
    learned = sorted({sentence.strip() for pair in learned_from for sentence in pair[:2]} - others)
    draw.shuffle(learned)
    return learned[:1200], judged


def neighbours(x: np.ndarray, k: int = 10) -> np.ndarray:
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    return np.argsort(-cosines, axis=1)[:, :k]


def hubness(near: np.ndarray) -> float:
    """Return the skewness of rows' counts as neighbours (Radovanović et al. 2010)."""
    counts = np.bincount(near.ravel(), minlength=len(near)).astype(float)
    return float(np.mean((counts - counts.mean()) ** 3) / max(counts.std(), 1e-9) ** 3)


def case(encode, learned: list[str], pairs: Pairs, method: str) -> dict[str, float]:
    """Return the measures of a calibration, before and after it."""
    settings = FitSettings()
    kept, rows = learning.hold_out(learned, settings)
    u = encode(learned)
    held_out = [learned[row] for row in rows]
    dev = u[rows]
    measuring = learning.Measuring(encode=lambda some, label: encode(some), may_witness=False)
    by_name = find_method(method)
    if by_name.has_flow:
        # The held-out sentences choose the flow's step.
        fitted = learning.learn(learned, by_name, settings, measuring)
    else:
        fitted = learning.learn(u[kept], by_name, FitSettings(dev_fraction=0))
    (calibration,) = fitted.maps

    def calibrate(x: np.ndarray) -> np.ndarray:
        return np.asarray(calibration.forward(x))

    values: dict[str, float] = {}
    found = witness(encode, np.asarray, calibrate, held_out, dev)
    values |= {
        "mixtures_before": found.before,
        "mixtures_after": found.after,
        "directions": found.directions,
    }
    sides = {"before": dev, "after": calibrate(dev)}
    near = {name: neighbours(x) for name, x in sides.items()}
    for name, x in sides.items():
        measured = measure_isotropy(x)
        values |= {
            f"cosine_{name}": measured.mean_cosine,
            f"participation_{name}": measured.participation_ratio,
        }
        values |= {f"hubness_{name}": hubness(near[name])}
    shared = [len(set(a) & set(b)) for a, b in zip(near["before"], near["after"], strict=True)]
    a, b, gold = (list(column) for column in zip(*pairs, strict=True))
    pairs_before = (encode(a), encode(b))
    scores = {
        "before": cosines_of_pairs(*pairs_before, "before"),
        "after": cosines_of_pairs(*map(calibrate, pairs_before), "after"),
    }
    values |= {f"spearman_{name}": spearman(found, gold) for name, found in scores.items()}
    return values | {"agreement": float(np.mean(shared)) / 10, "sentences": len(held_out)}


def print_claims(cases: list[dict]) -> None:
    """Print how often the claims are right, also with other bounds."""
    columns = ("cases", "claims", "helps, right", "harms, right", "right", "worst helps")
    print(f"{'':32}" + "".join(f"{name:>14}" for name in columns))
    groups = {"encoders that set the bounds": [one for one in cases if one["bounds"]]}
    tests = groups["encoders that test them"] = [one for one in cases if not one["bounds"]]
    for key in ("method", "text", "encoder"):
        groups |= {
            f"  {value}": [one for one in tests if one[key] == value]
            for value in {one[key]: 0 for one in tests}
        }
    for name, some in groups.items():
        print(f"{name:32}" + "".join(f"{cell:>14}" for cell in _counted(some, 0.0)))
    print("\nwith a least change of the mixtures x100, on the encoders that test")
    for least in (0, 0.5, 1, 2, 3, 5, 8):
        print(f"{least:<32}" + "".join(f"{cell:>14}" for cell in _counted(tests, least)))


def _counted(cases: list[dict], least: float) -> list[str]:
    claims: dict[str, list[float]] = {"helps": [], "harms": []}
    for one in cases:
        found = Witness(
            one["sentences"], one["mixtures_before"], one["mixtures_after"], one["directions"]
        )
        kind = found.claim.partition(";")[0]
        if kind in claims and 100 * abs(found.after - found.before) >= least:
            claims[kind].append(100 * (one["spearman_after"] - one["spearman_before"]))
    helps, harms = claims.values()
    right, count = sum(x > 0 for x in helps) + sum(x < 0 for x in harms), len(helps) + len(harms)
    cells = [f"{len(cases)}", f"{100 * count / max(len(cases), 1):.0f} %"]
    cells += [
        f"{sum(x > 0 for x in helps)} of {len(helps)}",
        f"{sum(x < 0 for x in harms)} of {len(harms)}",
    ]
    return [*cells, f"{100 * right / max(count, 1):.1f} %", f"{min(helps, default=0):+.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bounds", nargs="+", required=True, help="encoders that set the bounds, as --bert_hub"
    )
    parser.add_argument("--tests", nargs="+", required=True, help="encoders that test them")
    parser.add_argument("--poolings", nargs="+", default=["avg", "avg-last-2", "cls"])
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B and SICK-R")
    parser.add_argument("--senteval_dir", required=True, help="SentEval's folder data")
    parser.add_argument("--cases", default="witness.jsonl")
    args = parser.parse_args()
    path = pathlib.Path(args.cases)
    cases = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    keys = ("encoder", "pooling", "text", "method")
    done = {tuple(one[key] for key in keys) for one in cases}
    kinds = {
        name: divided(name, *pairs)
        for name, pairs in texts(args.glue_dir, args.senteval_dir).items()
    }
    for pooling, encoder in itertools.product(args.poolings, [*args.bounds, *args.tests]):
        name = pathlib.Path(encoder).name
        if {(name, pooling, text, method) for text in kinds for method in METHODS} <= done:
            continue
        model = BertFlow.from_hub(encoder, pooling=pooling, max_seq_length=64)
        for text, (learned, judged) in kinds.items():
            cached = functools.cache(lambda sentences, model=model: model.encode_pooled(sentences))
            for method in METHODS:
                values = (name, pooling, text, method)
                if values not in done:
                    found = case(
                        lambda some, cached=cached: cached(tuple(some)), learned, judged, method
                    )
                    cases.append(
                        dict(zip(keys, values, strict=True))
                        | {"bounds": encoder in args.bounds}
                        | found
                    )
                    with path.open("a") as file:
                        file.write(f"{json.dumps(cases[-1])}\n")
    print_claims(cases)


if __name__ == "__main__":
    sys.exit(exit_status(main))
