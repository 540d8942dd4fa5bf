"""Siamese training on NLI as whole processes: `run_siamese` against a PyTorch loop, time and peak memory.

Both read the same pairs, take the same number of steps of 16 and save what is needed to resume. `nli_step` compares
what a step computes.
"""

import json
import pathlib
import statistics
import tempfile

from benchmarks import nli
from benchmarks.hugging_face_folder import hugging_face_folder
from benchmarks.options import Options
from benchmarks.timing import in_turn, paired_ratios, shown
from benchmarks.whole_runs import run_pytorch, run_siamese

STEPS = 117  # or those of an epoch
QUICK_STEPS = 3
# What a run may take where PyTorch takes less.
ALLOWED_MIB = 1536


def measure(options: Options) -> dict:
    """dict of times, memory, ratios and figures of both ways; see `run`."""
    examples = nli.read_pairs(options)
    steps = min(QUICK_STEPS if options.quick else STEPS, len(examples) // nli.BATCH_SIZE)
    with tempfile.TemporaryDirectory() as workspace:
        folder = pathlib.Path(workspace)
        rows = zip(examples.sentences_a, examples.sentences_b, examples.labels.tolist(), strict=True)
        (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        loop = {
            "weights": hugging_face_folder(options.bert_hub, folder / "weights"),
            "pairs": folder / "pairs.jsonl",
            "out": folder / "trained.pt",
            "max_seq_length": nli.MAX_SEQ_LENGTH,
            "batch_size": nli.BATCH_SIZE,
            "learning_rate": nli.LEARNING_RATE,
            "steps": steps,
            "seed": nli.SEED,
        }

        def ours() -> dict:
            with tempfile.TemporaryDirectory(dir=folder) as parent:
                return run_siamese(nli.settings(options, len(examples), steps, parent))

        ways = {"ours": ours, "pytorch": lambda: run_pytorch("benchmarks.peer_nli_run", options.threads, loop)}
        runs = in_turn(ways, options.repeats)
    for way, each in runs.items():
        seconds, memory = (statistics.median(run[name] for run in each) for name in ("seconds", "peak_memory_mib"))
        print(f"  {way:10} {seconds:8.1f} s  {memory:6.0f} MiB")
        for stage, seconds in each[-1]["stages"].items():
            print(f"    {stage:8} {seconds:8.1f} s")
    seconds = {way: [run["seconds"] for run in each] for way, each in runs.items()}
    memory = {way: [run["peak_memory_mib"] for run in each] for way, each in runs.items()}
    ratio = paired_ratios(seconds["pytorch"], seconds["ours"])
    memory_ratio = paired_ratios(memory["ours"], [max(ALLOWED_MIB, each) for each in memory["pytorch"]])
    print(f"  {steps} steps; to PyTorch: {shown(ratio)} x")
    print(f"  peak memory, to the greater of PyTorch's and {ALLOWED_MIB} MiB: {shown(memory_ratio)}")
    return {
        "pairs": len(examples),
        "pairs_per_step": nli.BATCH_SIZE,
        "steps": steps,
        "dtype": "float32",
        "runs": runs,
        "ratios": ratio,
        "memory_ratios": memory_ratio,
        "figures": {
            "to_pytorch": ratio["median"],
            "seconds": statistics.median(seconds["ours"]),
            "peak_memory_mib": statistics.median(memory["ours"]),
            "memory_to_allowed": memory_ratio["median"],
        },
    }
