"""`bert-flow encode` of 20,000 sentences to a folder: by one process, to one file, and by two of Ray's workers.

The seconds are those of whole processes, starts included. Ray's two workers are left out where Ray is not installed.
"""

import contextlib
import importlib.util
import random
import tempfile
from collections.abc import Callable

from benchmarks.processes import Side
from benchmarks.run import Options

ROWS = 20_000


def ways(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:
    """Return what `run` times in turn."""
    words = sorted({word for pair in options.pairs("STS-B", "train") for s in pair[:2] for word in s.split()})
    rng = random.Random(0)
    path = options.folder / "sentences.txt"
    path.write_text("".join(f"{' '.join(rng.choices(words, k=rng.randint(4, 20)))}\n" for _ in range(ROWS)))

    def run(side: Side, out: str, *more: str) -> dict:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            command = ("-m", "bert_flow_tf.cli", "encode", "--bert_hub", options.bert_hub, "--input", path)
            return side.run(*command, "--out", f"{folder}/{out}", *more)

    found = {name: lambda side=side: run(side, "folder") for name, side in options.ours.items()}
    found["one file"] = lambda: run(options.ours["here"], "embeddings.npy")
    if importlib.util.find_spec("ray"):
        found["two workers"] = lambda: run(options.ours["here"], "folder", "--workers", "2")
    return found
