"""How `encode_parts` grows: time per sentence and peak memory at 1k, 10k and 100k sentences, each in its own process.

The sentences are all different, since repeats would be computed once: random words of the corpus, in sentences of the
corpus' lengths. They are read from a file, as a stream. The time is that of encoding with a loaded and warm model;
loading is reported separately. The sizes run up and down again, so that a drift of the machine
does not look like growth.
"""

import json
import pathlib
import random
import statistics
import sys
import tempfile

from benchmarks import corpus
from benchmarks.options import Options
from benchmarks.peers import ROOT
from benchmarks.timing import whole_process

SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (50, 100, 200)
WARM_UP = 1_000


def measure(options: Options) -> dict:
    """dict of times, memory and figures of each size; see `run`."""
    sizes = QUICK_SIZES if options.quick else SIZES
    sentences = corpus.all_sentences(options)
    runs = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory() as folder:
        warm_up = _written(folder, "warm_up", sentences, min(WARM_UP, sizes[1]), seed=0)
        files = {size: _written(folder, size, sentences, size, seed=size) for size in sizes}
        for size in (*sizes, *sizes[-2::-1]):
            command = [sys.executable, "-m", "benchmarks.growth_process", options.bert_hub, warm_up, files[size]]
            used = whole_process(command, cwd=ROOT)
            runs[size].append(
                json.loads(used["output"].splitlines()[-1])
                | {"process_seconds": used["seconds"], "peak_memory_mib": used["peak_memory_mib"]}
            )
    each = {size: statistics.fmean(run["encode_seconds"] for run in runs[size]) / size for size in sizes}
    memory = {size: max(run["peak_memory_mib"] for run in runs[size]) for size in sizes}
    for size in sizes:
        load = statistics.fmean(run["process_seconds"] - run["encode_seconds"] for run in runs[size])
        print(
            f"  {size:7d} sentences: {1e3 * each[size]:.3f} ms each, start-up and warm-up apart ({load:.1f} s), "
            f"peak memory {memory[size]:.0f} MiB"
        )
    _, middle, largest = sizes
    deviation = {size: 100 * (each[size] / each[middle] - 1) for size in sizes}
    print(f"  largest deviation of time from that of {middle}: {max(map(abs, deviation.values())):.1f} %")
    return {
        "sentences": list(sizes),
        "distinct_sentences": list(sizes),
        "dtype": "float32",
        "runs": runs,
        "seconds_per_sentence": each,
        "peak_memory_mib": memory,
        "figures": {
            "time_deviation": max(map(abs, deviation.values())),
            "memory_ratio": memory[largest] / memory[middle],
        },
    }


def different_sentences(sentences: list[str], n: int, seed: int) -> list[str]:
    """list of `n` different sentences: random words of `sentences`, with the length of a random one of them."""
    generator = random.Random(seed)
    lengths = [len(sentence.split()) for sentence in sentences]
    words = [word for sentence in sentences for word in sentence.split()]
    made = {}
    while len(made) < n:
        made[" ".join(generator.choices(words, k=generator.choice(lengths))).lower()] = None
    return list(made)


def _written(folder: str, name: str | int, sentences: list[str], n: int, seed: int) -> str:
    path = pathlib.Path(folder) / f"{name}.txt"
    path.write_text("".join(f"{line}\n" for line in different_sentences(sentences, n, seed)), encoding="utf-8")
    return str(path)
