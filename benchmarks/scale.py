"""Time `bert-flow encode-folder` on 20,000 sentences, with one and two workers.

The times include the start of the processes. Without Ray, two workers are left out. Another
checkout is not measured.
"""

import contextlib
import importlib.util
import random
import tempfile
from collections.abc import Callable

from benchmarks.run import Options

ROWS = 20_000


def functions(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:
    words = sorted(
        {word for pair in options.pairs("STS-B", "train") for s in pair[:2] for word in s.split()}
    )
    rng = random.Random(0)
    path = options.folder / "sentences.txt"
    path.write_text(
        "".join(f"{' '.join(rng.choices(words, k=rng.randint(4, 20)))}\n" for _ in range(ROWS))
    )

    here = options.ours["here"]

    def run(command: str, out: str, *more: str) -> dict:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            given = ("--bert_hub", options.bert_hub, "--input", path, "--out", f"{folder}/{out}")
            return here.run("-m", "bert_flow_tf.cli", command, *given, *more)

    found = {
        "here": lambda: run("encode-folder", "folder"),
        "one file": lambda: run("encode", "embeddings.npy"),
    }
    if importlib.util.find_spec("ray"):
        found["two workers"] = lambda: run("encode-folder", "folder", "--workers", "2")
    return found
