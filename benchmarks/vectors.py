"""Show what fewer channels and bits cost and save: `python -m benchmarks.vectors`.

    python -m benchmarks.vectors --glue_dir GLUE --encoder exp/paper_effect/demo_mlm_…/encoder

prints two tables for docs/vectors.md. The first has Spearman's correlation (x100) on STS-B's test
pairs: of the demo encoder, and of one trained by masked language modelling, without a calibration
and with some that learn from all splits' sentences. "none" and "flow" keep their first channels.
Cosines compare float32 and int8, and equal bits compare binary. The second has the size of a
vector, and the time in which faiss finds the ten nearest of random vectors, on one thread.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.processes import seconds_of
from bert_flow_tf import BertFlow, calibrate
from bert_flow_tf.common.errors import exit_status
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.tasks import SPLITS, concatenate, get_task, read_split
from bert_flow_tf.vectors.metrics import spearman
from bert_flow_tf.vectors.quantization import quantized
from bert_flow_tf.vectors.similarities import FUNCTIONS

SIZES = (384, 256, 128, 64)
PRECISIONS = ("float32", "int8", "binary")
_ORDERED = ("auto", "whitening")
_QUERIES = 30


class Sentences(NamedTuple):
    """Sentences to learn from, and scored test pairs."""

    learned: list[str]
    a: list[str]
    b: list[str]
    gold: np.ndarray


def read_sentences(glue_dir: str) -> Sentences:
    task = get_task("STS-B")
    splits = concatenate([read_split(task, f"{glue_dir}/STS-B", split) for split in SPLITS])
    test = read_scored_split(task, glue_dir, "test")
    learned = splits.sentences_a + splits.sentences_b
    return Sentences(learned, test.sentences_a, test.sentences_b, test.labels)


def score(a: np.ndarray, b: np.ndarray, gold: np.ndarray, precision: str) -> float:
    """Return Spearman's correlation (x100) of embeddings [n, D] at a precision."""
    both = quantized(np.concatenate([a, b]), precision)
    a, b = both[: len(a)], both[len(a) :]
    if precision == "binary":
        different = np.unpackbits(a.view(np.uint8) ^ b.view(np.uint8), axis=1)
        return 100 * spearman(-different.sum(axis=1, dtype=np.int64), gold)
    return 100 * spearman(FUNCTIONS["cosine"](np.float32(a), np.float32(b)), gold)


def scores_of(model: BertFlow, sentences: Sentences) -> dict[str, list[list[float]]]:
    """Return a model's scores by method, for each size and precision."""
    texts = list(dict.fromkeys([*sentences.learned, *sentences.a, *sentences.b]))
    rows = dict(zip(texts, model.encode_pooled(texts), strict=True))

    def encode(some: list[str]) -> np.ndarray:
        return np.stack([rows[text] for text in some])

    def calibrated(method: str) -> Callable[[list[str]], np.ndarray]:
        return calibrate(encode, sentences.learned, method=method).encode

    whole = {"none": encode, "flow": calibrated("flow")}
    found = {}
    for name in ("none", *_ORDERED, "flow"):
        found[name] = []
        for size in SIZES:
            encoded = calibrated(f"{name}-{size}") if name in _ORDERED else whole[name]
            a, b = encoded(sentences.a)[:, :size], encoded(sentences.b)[:, :size]
            found[name].append([score(a, b, sentences.gold, one) for one in PRECISIONS])
    return found


def index_of(vectors: np.ndarray, precision: str) -> tuple[Any, np.ndarray]:
    """Return a flat faiss index of vectors [n, D], and some queries."""
    import faiss

    size = vectors.shape[1]
    codes = quantized(vectors, precision)
    if precision == "binary":
        codes = codes.view(np.uint8)
        index = faiss.IndexBinaryFlat(size)
    elif precision == "int8":
        codes = np.float32(codes)
        kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
        index = faiss.IndexScalarQuantizer(size, kind, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexFlatIP(size)
    index.add(codes)
    return index, codes[:_QUERIES]


def milliseconds(size: int, precision: str, rows: int) -> float:
    """Return the median time of one query over `rows` vectors."""
    vectors = np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index, queries = index_of(vectors, precision)
    times = [seconds_of(lambda query=query: index.search(query[None], 10)) for query in queries]
    return 1e3 * statistics.median(times)


def bytes_of(size: int, precision: str) -> int:
    return {"float32": 4 * size, "int8": size, "binary": -(-size // 8)}[precision]


def print_scores(name: str, found: dict[str, list[list[float]]]) -> None:
    print(f"\n| {name} | " + " | ".join(f"{size}" for size in SIZES) + " |")
    print("| --- " * (1 + len(SIZES)) + "|")
    for method, by_size in found.items():
        cells = [" / ".join(f"{one:.1f}" for one in by_precision) for by_precision in by_size]
        label = f"{method}-D" if method in _ORDERED else method
        print(f"| `{label}` | {' | '.join(cells)} |", flush=True)


def print_sizes(rows: int) -> None:
    print(f"\n| channels | precision | bytes | a million | ms over {rows:,} |")
    print("| --- " * 5 + "|")
    for size in SIZES:
        for precision in PRECISIONS:
            each = f"{bytes_of(size, precision):,}"
            found = f"{milliseconds(size, precision, rows):.2f}"
            print(f"| {size} | {precision} | {each} | {each} MB | {found} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B")
    parser.add_argument("--encoder", required=True, help="encoder after masked language modelling")
    parser.add_argument("--pooling", default="avg-last-2", help="of --encoder")
    parser.add_argument("--rows", type=int, default=100_000, help="vectors to search in")
    args = parser.parse_args()
    import faiss

    faiss.omp_set_num_threads(1)
    sentences = read_sentences(args.glue_dir)
    for name, model in (
        ("MLM encoder", BertFlow.from_hub(args.encoder, pooling=args.pooling)),
        ("demo encoder", BertFlow.demo()),
    ):
        print_scores(f"{name}: float32 / int8 / binary", scores_of(model, sentences))
    print_sizes(args.rows)


if __name__ == "__main__":
    sys.exit(exit_status(main))
