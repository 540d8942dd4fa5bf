"""Seconds from the start of a process to its first embedding, and its peak memory.

The process imports the package, loads an encoder that is in the cache and encodes one sentence. A first one, which
brings files into memory, is not counted.
"""

import statistics
import subprocess
import sys
import time

from benchmarks.peers import ROOT
from benchmarks.timing import exit_status_and_memory
from bert_flow_tf.errors import UserError

PROGRAM = """
import sys
from bert_flow_tf import BertFlow
embedding = BertFlow.from_hub(sys.argv[1]).encode("A boat lies in the harbour.")
print(*embedding, flush=True)
"""


def measure(options):
    """dict of times, memory and figures of the start; see `run`."""
    runs = [_run(options.bert_hub) for _ in range(1 + options.repeats)][1:]
    seconds = [run["seconds"] for run in runs]
    memory = statistics.median(run["peak_memory_mib"] for run in runs)
    median = statistics.median(seconds)
    print(f"  {median:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), peak memory {memory:.0f} MiB")
    return {
        "sentences": 1,
        "distinct_sentences": 1,
        "dtype": "float32",
        "runs": runs,
        "figures": {"seconds": median, "peak_memory_mib": memory},
    }


def _run(bert_hub):
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, bert_hub], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process.stdout:
        line = process.stdout.readline()
        seconds = time.perf_counter() - started
        status, memory = exit_status_and_memory(process)
    if status or not line:
        raise UserError(f"--bert_hub={bert_hub}: could not be loaded, expected an encoder (status {status})")
    return {"seconds": seconds, "peak_memory_mib": memory}
