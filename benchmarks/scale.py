"""How `encode --out DIR` grows: with workers, with sentences, and beside `encode` to one file.

All workers have one thread and a CPU of their own. Each embeds one shard with a loaded and warm model: one worker, then
two at once, which would take as long if they shared nothing (efficiency 1). `encode` writes the same sentences to
one Parquet file, on one CPU. Memory is that of a process with a model, at two numbers of sentences.

With Ray installed, two workers that it starts embed the same two shards; that asks more than starting two processes.
"""

import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from benchmarks import corpus
from benchmarks.growth import different_sentences
from benchmarks.options import Options
from benchmarks.peers import ROOT
from benchmarks.timing import in_turn, paired_ratios, shown, whole_process
from bert_flow_tf.errors import UserError

SHARD_ROWS, QUICK_SHARD_ROWS = 20_000, 200
# In memory at a time while they are made.
_CHUNK = 10_000


def measure(options: Options) -> dict:
    """dict of seconds, ratios and memory; see the module."""
    rows = QUICK_SHARD_ROWS if options.quick else SHARD_ROWS
    sizes = (100, 400) if options.quick else (10_000, options.sentences)
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        raise UserError("scale: found 1 CPU, expected 2, one for each worker (--threads)")
    sentences = corpus.all_sentences(options)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        warm_up = _written(place / "warm_up.txt", sentences, rows // 10)
        # Sentences of the same lengths, so that both have the same to do.
        shards = [_written(place / f"{i}.txt", sentences, rows, suffix=f" {i}") for i in range(2)]
        ways = {
            "encode": lambda: _at_once("encode", warm_up, shards[:1], cpus, options),
            "one worker": lambda: _at_once("shards", warm_up, shards[:1], cpus, options),
            "two workers": lambda: _at_once("shards", warm_up, shards, cpus, options),
        }
        if importlib.util.find_spec("ray"):
            ways["two of Ray's workers"] = lambda: _process("ray", warm_up, shards, cpus, options)["encode_seconds"]
        seconds = in_turn(ways, options.repeats)
        memory = {}
        for size in sizes:
            many = _written(place / "many.txt", sentences, size)
            memory[size] = _process("shards", warm_up, [many], cpus[:1], options)["peak_memory_mib"]
    efficiency = paired_ratios(seconds["one worker"], seconds["two workers"])
    overhead = paired_ratios(seconds["one worker"], seconds["encode"])
    for name, values in seconds.items():
        total = rows * (1 if name in ("encode", "one worker") else 2)
        print(
            f"  {name}: {statistics.median(values):.1f} s, {total / statistics.median(values):.0f} sentences a second"
        )
    print(f"  one worker to two: {shown(efficiency, 3)}, one worker to encode: {shown(overhead, 3)}")
    print("  peak memory:", *(f"{size:,} sentences {mib:.0f} MiB;" for size, mib in memory.items()))
    return {
        "shard_rows": rows,
        "seconds": seconds,
        "efficiency": efficiency,
        "overhead": overhead,
        "peak_memory_mib": memory,
        "figures": {
            "efficiency": efficiency["median"],
            "overhead_percent": 100 * (overhead["median"] - 1),
            "memory_ratio": memory[sizes[1]] / memory[sizes[0]],
        },
    }


def _written(path: pathlib.Path, sentences: list[str], n: int, suffix: str = "") -> str:
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, n, _CHUNK):
            made = different_sentences(sentences, min(_CHUNK, n - start), seed=start)
            file.writelines(f"{sentence}{suffix}\n" for sentence in made)
    return str(path)


def _command(way: str, warm_up: str, files: Sequence[str], cpus: Sequence[int], options: Options) -> list[str]:
    of_cpus = ",".join(map(str, cpus))
    return [sys.executable, "-m", "benchmarks.scale_process", way, options.bert_hub, of_cpus, warm_up, *files]


def _at_once(way: str, warm_up: str, files: Sequence[str], cpus: Sequence[int], options: Options) -> float:
    """Seconds of the slowest of the processes, one for each file and CPU, that begin at the same time."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes = [
        subprocess.Popen([*_command(way, warm_up, [file], [cpu], options), "--wait"], cwd=ROOT, **pipes)
        for file, cpu in zip(files, cpus, strict=False)
    ]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise UserError(f"scale: a process that was to measure {way} failed, expected it to end well")
    return max(json.loads(output.splitlines()[-1])["encode_seconds"] for output in outputs)


def _process(way: str, warm_up: str, files: Sequence[str], cpus: Sequence[int], options: Options) -> dict:
    used = whole_process(_command(way, warm_up, files, cpus, options), cwd=ROOT)
    return used | json.loads(used["output"].splitlines()[-1])
