"""Measure Spearman on STS Benchmark with and without a flow, over seeds.

    python -m benchmarks.sts_benchmark --glue_dir GLUE --seeds 1 2 3 4 5 --cached false

runs the original's commands (no flow; then a flow learned on all splits for one epoch at 1e-3) on
the demo encoder, or on `--bert_hub`, scores each run, and prints mean and deviation over seeds.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile

from benchmarks.flow_run import flow_flags
from benchmarks.processes import ROOT, Side
from bert_flow_tf.common.errors import exit_status
from bert_flow_tf.tasks.protocols import read_predictions, score_predictions
from bert_flow_tf.tasks.tasks import TASKS

NO_FLOW = {
    "flow": 0,
    "flow_loss": 0,
    "use_full_for_training": 0,
    "num_train_epochs": 1e-10,
    "do_train": "false",
}


def spearman(args: argparse.Namespace, kind: str, seed: int, flags: dict[str, object]) -> float:
    """Run `run_siamese` with these flags beside the flow run's; return its Spearman."""
    with tempfile.TemporaryDirectory() as parent:
        flags = flow_flags(f"{args.glue_dir}/STS-B", args.bert_hub, parent, seed) | flags
        flags["sentence_embedding_type"] = kind
        side = Side(sys.executable, os.environ | {"PYTHONPATH": str(ROOT)})
        side.run(
            "-m",
            "bert_flow_tf.run_siamese",
            *(f"--{name}={value}" for name, value in flags.items()),
        )
        predictions = read_predictions(pathlib.Path(parent, "run", "test_results.tsv"))
    return score_predictions(predictions, TASKS["sts-b"], args.glue_dir, "test")["spearman"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B")
    parser.add_argument("--bert_hub", default="demo")
    parser.add_argument("--types", nargs="+", default=["avg", "avg-last-2", "cls"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument(
        "--cached", choices=["true", "false"], default="false", help="cache embeddings, no dropout"
    )
    args = parser.parse_args()
    for kind in args.types:
        print(f"{kind:12} no flow  {spearman(args, kind, args.seeds[0], NO_FLOW):.4f}", flush=True)
        values = [
            spearman(args, kind, seed, {"cache_embeddings": args.cached}) for seed in args.seeds
        ]
        deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        each = ", ".join(f"{value:.4f}" for value in values)
        print(f"{kind:12} flow     {statistics.fmean(values):.4f}{deviation} ({each})", flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(main))
