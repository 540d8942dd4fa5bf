"""Compare the rule of `auto` with single calibrations, over many embedding spaces.

    python -m benchmarks.auto --sets ENCODER … --tests ENCODER … --glue_dir GLUE --senteval_dir DIR

learns each calibration on unlabelled sentences of a text, and judges it on labelled pairs of other
sentences. An encoder is a name as for --bert_hub, or `tfidf`. Each case is appended to the file
`--cases`; a second run skips the cases there. Then the command prints the spaces, and how far the
rule and the single calibrations go.
"""

import argparse
import itertools
import json
import pathlib
import random
import sys
from collections.abc import Callable, Sequence

import numpy as np

from bert_flow_tf.calibration.affine import spectrum, whitening_matrix
from bert_flow_tf.calibration.auto import Auto
from bert_flow_tf.vectors.isotropy import directions_in_use

Pairs = list[tuple[str, str, float]]
Map = tuple[np.ndarray, np.ndarray]
Encode = Callable[[Sequence[str]], np.ndarray]

SOFTNESS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
POWERS = (0.1, 0.2, 0.3, 0.4, 0.5)
MOST_SENTENCES = 3000
# A gain below two points is too small to ask for a share of it.
LARGE_GAIN = 2.0
HARM = 0.3


def texts(glue_dir: str, senteval_dir: str) -> dict[str, tuple[Pairs, Pairs]]:
    """Return each text's pairs, to learn on and to judge by."""
    from bert_flow_tf.sample_data import sample_glue_dir
    from bert_flow_tf.tasks.scored_tasks import read_task

    def scored(task: str, folder: str, split: str) -> Pairs:
        found = read_task(task, glue_dir=folder, split=split).subsets[task]
        labels = map(float, found.labels)
        return list(zip(found.sentences_a, found.sentences_b, labels, strict=True))

    genres = read_genres(glue_dir)
    sts12 = read_task("sts12", senteval_dir=senteval_dir)
    halves = {}
    for name, found in sts12.subsets.items():
        pairs = list(zip(found.sentences_a, found.sentences_b, found.labels, strict=True))
        # Small sub-sets judge too little.
        if len(pairs) >= 700:
            random.Random(name).shuffle(pairs)
            halves[name] = pairs[len(pairs) // 2 :], pairs[: len(pairs) // 2]
    sample = sample_glue_dir()
    captions, forums, news = genres["caption"], genres["forum"], genres["new"]
    return {
        "captions": (captions["train"], captions["dev"] + captions["test"]),
        "forums": (forums["train"], forums["dev"] + forums["test"]),
        "news": (news["train"], news["dev"] + news["test"]),
        "stsb": (
            [pair for one in genres.values() for pair in one["train"] + one["dev"]],
            [pair for one in genres.values() for pair in one["test"]],
        ),
        "sick": (scored("sickr", glue_dir, "train"), scored("sickr", glue_dir, "test")),
        "templates": (scored("stsb", sample, "train"), scored("stsb", sample, "test")),
        "captions>news": (captions["train"], news["dev"] + news["test"]),
        **halves,
    }


def read_genres(glue_dir: str) -> dict[str, dict[str, Pairs]]:
    """Return the STS Benchmark's pairs by genre and split."""
    files = {"train": "train.tsv", "dev": "dev.tsv", "test": "sts-test.csv"}
    genres: dict[str, dict[str, Pairs]] = {}
    for split, name in files.items():
        columns = (0, 5, 6, 4) if split == "test" else (1, 7, 8, 9)
        path = pathlib.Path(glue_dir, "STS-B", name)
        for line in path.read_text(encoding="utf-8").splitlines():
            cells = line.split("\t")
            genre, a, b, score = (cells[column] for column in columns)
            if score != "score":
                kind = genre.removeprefix("main-").rstrip("s")
                splits = genres.setdefault(kind, {name: [] for name in files})
                splits[split].append((a, b, float(score)))
    return genres


def sentences_of(name: str, learned_from: Pairs, judged_by: Pairs) -> list[str]:
    """Return sentences to learn on, none of them in a judged pair."""
    judged = {sentence.strip() for pair in judged_by for sentence in pair[:2]}
    learned = sorted({sentence.strip() for pair in learned_from for sentence in pair[:2]} - judged)
    # A text and the same text judged by another learn on the same order of sentences.
    random.Random(name.partition(">")[0]).shuffle(learned)
    return learned[:MOST_SENTENCES]


def encoder(name: str, pooling: str, sentences: Sequence[str]) -> Encode:
    """Return a function from sentences to embeddings [n, D]."""
    if name == "tfidf":
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.pipeline import make_pipeline

        words = TfidfVectorizer(sublinear_tf=True)
        return make_pipeline(words, TruncatedSVD(300, random_state=0)).fit(sentences).transform
    from bert_flow_tf import BertFlow

    return BertFlow.from_hub(name, pooling=pooling, max_seq_length=64).encode_pooled


def candidates(x: np.ndarray) -> dict[str, Map]:
    """Return the single calibrations of embeddings [n, D]."""
    mean, values, vectors = known = spectrum(x)
    identity = np.eye(x.shape[1])
    found = {"none": (np.zeros(x.shape[1]), identity), "mean": (mean, identity)}
    for softness in SOFTNESS:
        found[f"soft-{softness:g}"] = mean, whitening_matrix(known, softness)
    varies = np.sqrt(values) > known.negligible
    safe = np.where(varies, values, 1.0)
    for power in POWERS:
        found[f"power-{power:g}"] = mean, vectors * (varies * safe**-power)
    return found


def spearman(calibration: Map, a: np.ndarray, b: np.ndarray, gold: Sequence[float]) -> float:
    """Return Spearman's correlation x 100 of calibrated cosines."""
    from scipy import stats

    mean, matrix = calibration
    u = (a - mean) @ matrix
    v = (b - mean) @ matrix
    norms = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    cosines = np.sum(u * v, axis=1) / np.maximum(norms, 1e-30)
    return 100 * float(stats.spearmanr(cosines, gold).statistic)


def case(x: np.ndarray, a: np.ndarray, b: np.ndarray, gold: Sequence[float]) -> dict:
    """Return the scores and the choice of `auto` for a space."""
    auto = Auto().fit(x)
    maps = candidates(x)
    scores = {name: spearman(one, a, b, gold) for name, one in maps.items()}
    return {
        "rows": len(x),
        "directions": directions_in_use(spectrum(x).values, *x.shape),
        "choice": auto.choice_,
        "auto": spearman((auto.mean_, auto.matrix_), a, b, gold),
        "scores": scores,
    }


def print_spaces(cases: list[dict]) -> None:
    """Print each space's scores, the choice and the best."""
    shown = ("mean", "soft-10", "soft-1", "soft-0.1", "soft-0")
    columns = ("rows", "directions", "none", *shown, "auto", "best", "regret")
    print(f"{'space':44}" + "".join(f"{name:>11}" for name in columns) + "  best calibration")
    for one in sorted(cases, key=lambda one: one["directions"]):
        best = max(one["scores"], key=one["scores"].get)
        high = max(one["scores"][best], one["auto"])
        cells = [one["scores"]["none"], *(one["scores"][name] for name in shown)]
        cells += [one["auto"], high, high - one["auto"]]
        name = f"{one['encoder']} {one['pooling']} {one['text']}"
        left = f"{name:44.44}{one['rows']:>11,}{one['directions']:>11.1f}"
        print(left + "".join(f"{cell:>11.2f}" for cell in cells) + f"  {best}")


def print_aims(title: str, cases: list[dict]) -> None:
    """Print how far `auto` and the single calibrations go."""
    columns = ("worst", "harmed", "90 % of", "gains", "regret", "mean gain")
    print(f"\n{title + f', {len(cases)} spaces':44}" + "".join(f"{name:>11}" for name in columns))
    for name in ("auto", *cases[0]["scores"]):
        chosen = np.array([{**one["scores"], "auto": one["auto"]}[name] for one in cases])
        none = np.array([one["scores"]["none"] for one in cases])
        best = np.array([max(one["auto"], *one["scores"].values()) for one in cases])
        gains = chosen - none
        large = best - none > LARGE_GAIN
        reached = gains >= 0.9 * (best - none)
        cells = [f"{gains.min():+.2f}", f"{np.sum(gains < -HARM)}", f"{np.sum(reached & large)}"]
        cells += [f"{large.sum()}", f"{np.mean(best - chosen):.2f}", f"{gains.mean():+.2f}"]
        print(f"{name:44}" + "".join(f"{cell:>11}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="*", default=[], help="encoders that set the rule")
    parser.add_argument("--tests", nargs="*", default=[], help="encoders that test it")
    parser.add_argument("--poolings", nargs="+", default=["avg", "avg-last-2", "cls"])
    parser.add_argument("--texts", nargs="+", help="[default: all]")
    parser.add_argument("--rows", nargs="+", type=int, default=[MOST_SENTENCES])
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B and SICK-R")
    parser.add_argument("--senteval_dir", required=True, help="SentEval's folder data")
    parser.add_argument("--cases", default="auto.jsonl")
    args = parser.parse_args()
    path = pathlib.Path(args.cases)
    lines = path.read_text().splitlines() if path.exists() else []
    cases = [json.loads(line) for line in lines]
    keys = ("encoder", "pooling", "text", "limit")
    done = {tuple(one[key] for key in keys) for one in cases}
    kinds = texts(args.glue_dir, args.senteval_dir)
    learned = {name: sentences_of(name, *pairs) for name, pairs in kinds.items()}
    every = sorted({sentence for some in learned.values() for sentence in some})
    names = args.texts or list(kinds)
    for source, pooling in itertools.product([*args.sets, *args.tests], args.poolings):
        name = pathlib.Path(source).name
        wanted = [(name, pooling, *rest) for rest in itertools.product(names, args.rows)]
        if (source == "tfidf" and pooling != args.poolings[0]) or {*wanted} <= done:
            continue
        encode = encoder(source, pooling, every)
        for text in names:
            a, b, gold = (list(column) for column in zip(*kinds[text][1], strict=True))
            x, u, v = (np.asarray(encode(some), np.float64) for some in (learned[text], a, b))
            for limit in args.rows:
                values = (name, pooling, text, limit)
                if values not in done:
                    known = dict(zip(keys, values, strict=True)) | {"sets": source in args.sets}
                    cases.append(known | case(x[:limit], u, v, gold))
                    with path.open("a") as file:
                        file.write(f"{json.dumps(cases[-1])}\n")
    print_spaces(cases)
    for title, is_set in (("encoders that set the rule", True), ("encoders that test it", False)):
        if some := [one for one in cases if one["sets"] == is_set]:
            print_aims(title, some)


if __name__ == "__main__":
    sys.exit(main())
