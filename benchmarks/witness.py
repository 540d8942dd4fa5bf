"""Compare the measure of `fit` without labels with labelled pairs.

    python -m benchmarks.witness --encoders demo ENCODER --glue_dir GLUE --senteval_dir SENTEVAL

learns each calibration on 500 and 2,000 sentences of a set, or on all, and measures both on the sentences of other
pairs of the set. The sets are STS-B, its three genres, SICK and the sub-sets of STS-12. Each case is appended to the
file `--cases`; a second run skips the cases there. Then the command prints how often the claims are right, and draws
the changes.
"""

import argparse
import itertools
import json
import pathlib
import random
import sys

import numpy as np
from scipy import stats

from bert_flow_tf import BertFlow
from bert_flow_tf.data.scored_tasks import read_task
from bert_flow_tf.errors import exit_status
from bert_flow_tf.evaluation.plots import BLUE, GREEN, GREY, VERMILION, styled_figure
from bert_flow_tf.evaluation.protocols import cosines, spearman
from bert_flow_tf.evaluation.witness import Witness, witness

METHODS = {"flow": VERMILION, "whitening": BLUE, "sn": GREEN, "natsv-5": GREY}
Pairs = list[tuple[str, str, float]]


def sets_of_pairs(glue_dir: str, senteval_dir: str) -> dict[str, Pairs]:
    """Return the pairs of each set by its name."""
    genres: dict[str, Pairs] = {}
    for split, columns in (("train", (1, 7, 8, 9)), ("dev", (1, 7, 8, 9)), ("sts-test.csv", (0, 5, 6, 4))):
        path = pathlib.Path(glue_dir, "STS-B", split if "." in split else f"{split}.tsv")
        for line in path.read_text(encoding="utf-8").splitlines():
            genre, a, b, score = (line.split("\t")[column] for column in columns)
            if score != "score":
                genres.setdefault(f"STS-B {genre.removeprefix('main-').rstrip('s')}", []).append((a, b, float(score)))
    parts = [read_task("sickr", glue_dir=glue_dir, split=split).subsets["sickr"] for split in ("train", "dev", "test")]
    scored = {"SICK": parts} | {
        name: [one] for name, one in read_task("sts12", senteval_dir=senteval_dir).subsets.items()
    }
    others = {
        name: [
            pair for one in some for pair in zip(one.sentences_a, one.sentences_b, map(float, one.labels), strict=True)
        ]
        for name, some in scored.items()
    }
    return {"STS-B": list(itertools.chain.from_iterable(genres.values())), **genres, **others}


def divided(name: str, pairs: Pairs, seed: int) -> tuple[list[str], list[str], Pairs]:
    """Return training sentences, other held-out sentences, and their pairs."""
    pairs, draw = [(a.strip(), b.strip(), score) for a, b, score in pairs], random.Random(f"{name}{seed or ''}")
    draw.shuffle(pairs)
    judged = pairs[: min(1500, 55 * len(pairs) // 100)]
    held_out = sorted({sentence for pair in judged for sentence in pair[:2]})
    learned = sorted({sentence for pair in pairs for sentence in pair[:2]}.difference(held_out))
    draw.shuffle(held_out)
    draw.shuffle(learned)
    return learned[:2000], held_out[:1000], judged


def case(
    model: BertFlow, learned: list[str], held_out: list[str], pairs: Pairs, method: str, seed: int
) -> dict[str, float]:
    """Return the measures of a calibration, before and after it."""
    model.fit(learned, method=method, dev_fraction=0, seed=1234 + seed, show_progress_bar=False)
    u, v = (model.encode_pooled(list(side)) for side in list(zip(*pairs, strict=True))[:2])
    gold = [score for _, _, score in pairs]
    found = witness(model.encode_pooled, model.after_flow, held_out, seed)
    sides = {"before": (u, v), "after": (model.after_flow(u), model.after_flow(v))}
    scores = {f"spearman_{side}": spearman(cosines(*both, side), gold) for side, both in sides.items()}
    return {**{f"witness_{key}": getattr(found, key) for key in ("sentences", "before", "after", "error")}, **scores}


def print_claims(cases: list[dict]) -> None:
    """Print how often the claims are right, overall and by group."""
    columns = ("cases", "r", "rho", "right/helps", "right/harms", "no claim")
    print(f"{'':24}" + "".join(f"{name:>13}" for name in columns))
    groups = {"all": cases} | {
        f"{key} {value}": [one for one in cases if one[key] == value]
        for key in ("encoder", "pooling", "set", "method", "rows")
        for value in dict.fromkeys(one[key] for one in cases)
    }
    for name, some in groups.items():
        x, y = (
            np.array([one[f"{key}_after"] - one[f"{key}_before"] for one in some]) for key in ("witness", "spearman")
        )
        keys = ("sentences", "before", "after", "error")
        claims = np.array([Witness(*(one[f"witness_{key}"] for key in keys)).claim for one in some])
        cells = [len(some), f"{np.corrcoef(x, y)[0, 1]:.2f}", f"{stats.spearmanr(x, y).statistic:.2f}"]
        for claim, right in (("helps", y > 0), ("harms", y < 0)):
            cells.append(f"{(right & (claims == claim)).sum()}/{(claims == claim).sum()}")
        cells.append(int(sum(one.startswith("no") for one in claims)))
        print(f"{name:24}" + "".join(f"{cell:>13}" for cell in cells))


def draw(cases: list[dict], out: str) -> None:
    """Draw the change of Spearman's correlation over that of the witness."""
    with styled_figure(6.4, 4.4) as (figure, (panel,)):
        for method, colour in METHODS.items():
            some = [one for one in cases if one["method"] == method]
            sides = [
                [100 * (one[f"{key}_after"] - one[f"{key}_before"]) for one in some] for key in ("witness", "spearman")
            ]
            panel.scatter(*sides, s=14, alpha=0.6, linewidths=0, color=colour, label=method)
        panel.axhline(0, color="black", linewidth=0.8)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set(xlabel="change of the witness × 100", ylabel="change of Spearman × 100", xlim=(-20, 20))
        panel.legend()
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", required=True, help="as --bert_hub")
    parser.add_argument("--poolings", nargs="+", default=["avg-last-2", "avg", "cls"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B and SICK-R")
    parser.add_argument("--senteval_dir", required=True, help="SentEval's folder data")
    parser.add_argument("--seed", type=int, default=0, help="of the sentences drawn, the flow and the witness")
    parser.add_argument("--cases", default="witness.jsonl")
    parser.add_argument("--out", default="witness.png")
    args = parser.parse_args()
    path = pathlib.Path(args.cases)
    cases = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    keys = ("encoder", "pooling", "set", "rows", "method", "seed")
    done = {tuple(one[key] for key in keys) for one in cases}
    for encoder, pooling in itertools.product(args.encoders, args.poolings):
        model = BertFlow.from_hub(encoder, pooling=pooling, max_seq_length=64)
        for name, pairs in sets_of_pairs(args.glue_dir, args.senteval_dir).items():
            learned, held_out, judged = divided(name, pairs, args.seed)
            sizes = (500, 2000) if len(learned) == 2000 else (len(learned),)
            for rows, method in itertools.product(sizes, args.methods):
                values = (pathlib.Path(encoder).name, pooling, name, rows, method, args.seed)
                named = dict(zip(keys, values, strict=True))
                # Whitening needs more sentences than channels.
                if values not in done and rows > model.embedding_size:
                    cases.append(named | case(model, learned[:rows], held_out, judged, method, args.seed))
                    with path.open("a") as file:
                        file.write(f"{json.dumps(cases[-1])}\n")
    print_claims(cases)
    draw(cases, args.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
