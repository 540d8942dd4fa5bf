"""STS Benchmark with and without flow: Spearman on its test set by embedding type, seed and treatment of the encoder.

    python benchmarks/sts_benchmark.py --glue_dir GLUE --out results.json

runs the original's commands (no flow; then a flow learned on all splits for one epoch at 1e-3) on the demo encoder, or
on `--bert_hub`, scores each run, and prints a table with mean and deviation over seeds. A result that the output file
holds already is not measured again.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from bert_flow_tf.errors import ArgumentParser, UserError, exit_status
from bert_flow_tf.evaluation.predicted import read_predictions, score_predictions
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.paper.figures import original_scores
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE

FLOW_FLAGS = ("--flow=1", "--flow_loss=1", "--use_full_for_training=1", "--num_train_epochs=1.0", "--do_train=true")
NO_FLOW_FLAGS = ("--flow=0", "--num_train_epochs=1e-10")


def measure(args: argparse.Namespace, embedding_type: str, flow: bool, seed: int, cached: bool) -> dict:
    """Dictionary of a run's Pearson, Spearman and, where it trained, its own account of time and memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "bert_flow_tf.run_siamese", f"--bert_hub={args.bert_hub}", "--task_name=STS-B"),
            *(f"--data_dir={args.glue_dir}/STS-B", f"--output_parent_dir={folder}", "--exp_name=run"),
            *(f"--sentence_embedding_type={embedding_type}", f"--seed={seed}", "--max_seq_length=64"),
            *("--num_examples=0", "--do_predict=true", f"--cache_embeddings={str(cached).lower()}"),
            *(FLOW_FLAGS if flow else NO_FLOW_FLAGS),
        ]
        if args.cached_dir and cached:
            command.append(f"--cached_dir={args.cached_dir}")
        outcome = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if outcome.returncode == 2:
            raise UserError(outcome.stderr.strip().splitlines()[-1].removeprefix("error: "))
        if outcome.returncode:
            print(outcome.stderr, file=sys.stderr)
        outcome.check_returncode()
        run = pathlib.Path(folder) / "run"
        scores = score_predictions(read_predictions(run / "test_results.tsv"), "STS-B", args.glue_dir, "test")
        results = {"pearson": scores.pearson, "spearman": scores.spearman}
        if flow:
            results["training"] = json.loads((run / TRAIN_RESULTS_FILE).read_text())
        return results


def mean_and_deviation(values: list[float]) -> str:
    return f"{statistics.fmean(values):.4f}" + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B")
    parser.add_argument("--out", required=True, help="JSON file of all results, added to")
    parser.add_argument("--bert_hub", default="demo")
    parser.add_argument("--cached_dir", help="folder for embeddings shared by the runs")
    parser.add_argument("--types", nargs="+", default=["avg", "avg-last-2", "cls"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--cached", choices=["true", "false", "both"], default="both")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    results = json.loads(out.read_text()) if out.exists() else {}
    caches = {"true": [True], "false": [False], "both": [True, False]}[args.cached]
    runs = [(kind, False, args.seeds[0], True) for kind in args.types]
    runs += [(kind, True, seed, cached) for cached in caches for kind in args.types for seed in args.seeds]
    for kind, flow, seed, cached in runs:
        key = f"{args.bert_hub} {kind} {f'flow seed {seed}' if flow else 'no flow'}{'' if cached else ' uncached'}"
        if key not in results:
            results[key] = measure(args, kind, flow, seed, cached)
            write_atomically(out, json.dumps(results, indent=2) + "\n")
        print(f"{key:45} Spearman {results[key]['spearman']:.4f}  Pearson {results[key]['pearson']:.4f}", flush=True)
    print("\nmean Spearman and deviation over seeds", ", ".join(map(str, args.seeds)))
    for cached in caches:
        for kind in args.types:
            suffix = "" if cached else " uncached"
            values = [results[f"{args.bert_hub} {kind} flow seed {seed}{suffix}"]["spearman"] for seed in args.seeds]
            print(f"{kind:12} flow{suffix:10} {mean_and_deviation(values)}")
    if args.bert_hub == "demo":
        print("\nthe original's runs on these weights")
        for kind in args.types:
            for name, config in (("no flow", None), ("flow", "config_l3_d3_w32")):
                values = original_scores("STS-B", "demo", kind, config)
                print(
                    f"{kind:12} {name:14} {mean_and_deviation([value / 100 for value in values])} ({len(values)} runs)"
                )


if __name__ == "__main__":
    sys.exit(exit_status(main))
