"""`siamese_then_flow.sh` after its set-up, on the sample data."""

import os
import re
import statistics
import sys
import tempfile

from benchmarks import peers
from benchmarks.options import Options
from benchmarks.timing import in_turn, whole_process
from bert_flow_tf.sample_data import sample_glue_dir

# Name -> module.
WAYS = {"ours": "bert_flow_tf.recipe"}
# A stage that is scored: its title, Pearson, Spearman and seconds.
_ROW = re.compile(r"^(\S.*?)  +(-?\d+\.\d\d)  +(-?\d+\.\d\d)  +\d+\.\d", re.MULTILINE)


def measure(options: Options) -> dict:
    """dict of times, memory, scores, ratios and figures of both ways; --quick leaves NLI out; see `run`."""
    runs = in_turn({way: lambda module=module: _run(options, module) for way, module in WAYS.items()}, options.repeats)
    seconds = {way: [run["seconds"] for run in each] for way, each in runs.items()}
    for way, each in runs.items():
        memory = statistics.median(run["peak_memory_mib"] for run in each)
        print(f"  {way:18} {statistics.median(seconds[way]):8.1f} s  {memory:6.0f} MiB")
    for title, scores in runs["ours"][-1]["scores"].items():
        print(f"    {title:32} {' '.join(scores)}")
    tables = [run["scores"] for each in runs.values() for run in each]
    differing = {title for table in tables for title in tables[0] if table.get(title) != tables[0][title]}
    return {
        "dtype": "float32",
        "runs": runs,
        "figures": {
            "seconds": statistics.median(seconds["ours"]),
            "rows_that_differ": len(differing),
        },
    }


def _run(options: Options, module: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        used = whole_process(
            [sys.executable, "-m", module],
            cwd=peers.ROOT,
            env={
                **os.environ,
                "BERT_HUB": options.bert_hub,
                "GLUE_DIR": str(sample_glue_dir()),
                "OUTPUT_PARENT_DIR": folder,
                "SKIP_NLI": str(int(options.quick)),
            },
        )
    scores = {title: values for title, *values in _ROW.findall(used.pop("output"))}
    return used | {"scores": scores}
