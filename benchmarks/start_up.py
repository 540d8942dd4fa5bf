"""Seconds from the start of a process to its first embedding, and its peak memory.

The process imports the package, loads an encoder that is in the cache and encodes one sentence. A first one, which
brings files into memory, is not counted.
"""

import statistics
import sys

from benchmarks.options import Options
from benchmarks.peers import ROOT
from benchmarks.timing import whole_process

PROGRAM = """
import sys
from bert_flow_tf import BertFlow
embedding = BertFlow.from_hub(sys.argv[1]).encode("A boat lies in the harbour.")
print(*embedding, flush=True)
"""


def measure(options: Options) -> dict:
    """dict of times, memory and figures of the start; see `run`."""
    command = [sys.executable, "-c", PROGRAM, options.bert_hub]
    runs = [whole_process(command, cwd=ROOT) for _ in range(1 + options.repeats)][1:]
    seconds = [run["seconds_to_output"] for run in runs]
    memory = statistics.median(run["peak_memory_mib"] for run in runs)
    median = statistics.median(seconds)
    print(f"  {median:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), peak memory {memory:.0f} MiB")
    return {
        "sentences": 1,
        "distinct_sentences": 1,
        "dtype": "float32",
        "seconds_to_first_embedding": seconds,
        "seconds_of_process": [run["seconds"] for run in runs],
        "figures": {"seconds": median, "peak_memory_mib": memory},
    }
