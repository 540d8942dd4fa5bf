"""The flow learned on STS-B, all splits, one epoch, and its test set scored: whole processes, time and peak memory.

Three ways, in turn, with a seed of its own for each repeat:

- ours: `run_siamese` as its users call it. The frozen encoder's embeddings are computed once, sentences of like length
  together.
- the original's: our own code made to work as the original does. No cache, so the encoder runs in every step and once
  more for the test set, with dropout in training, and everything is padded to 64. What it leaves out is the original's
  reversal of channels as a product with a constant matrix: there is no such option here, so the baseline is a little
  faster than the original.
- a PyTorch loop (`peer_flow_run`): transformers' BERT without dropout, padded to the longest of the batch.

Spearman is that of each way's cosines with the gold scores, by the project's own metric, as a mean over seeds.
"""

import dataclasses
import itertools
import json
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks import corpus
from benchmarks.hugging_face_folder import hugging_face_folder
from benchmarks.options import Options
from benchmarks.timing import in_turn, paired_ratios, shown
from benchmarks.whole_runs import run_pytorch, run_siamese
from bert_flow_tf.evaluation.predicted import read_predictions, score_predictions
from glow.config import DEFAULT_CONFIG, GlowConfig

WAYS = {"ours": {}, "original": {"cache_embeddings": "false", "pad_to_max_seq_length": "true"}}
MAX_SEQ_LENGTH = 64
LEARNING_RATE = 1e-3
FIRST_SEED = 1234
QUICK_PAIRS = 64


def measure(options: Options) -> dict:
    """dict of times, memory, Spearman, ratios and figures of the three ways; see `run`."""
    with tempfile.TemporaryDirectory() as workspace:
        folder = pathlib.Path(workspace)
        weights = hugging_face_folder(options.bert_hub, folder / "weights")
        glue_dir = _quick_data(options.glue_dir, folder) if options.quick else options.glue_dir
        ways = {way: _counted(_run, options, glue_dir, folder, flags) for way, flags in WAYS.items()}
        ways["pytorch"] = _counted(_run_pytorch, options, glue_dir, folder, weights)
        runs = in_turn(ways, options.repeats)
        sentences = corpus.all_sentences(dataclasses.replace(options, glue_dir=glue_dir, quick=False))
    for way, each in runs.items():
        print(
            f"  {way:10} {_median(each, 'seconds'):8.1f} s  {_median(each, 'peak_memory_mib'):6.0f} MiB  "
            f"Spearman {_mean(each, 'spearman'):.4f}"
        )
        for stage, seconds in each[-1]["stages"].items():
            print(f"    {stage:8} {seconds:8.1f} s")
    seconds = {way: [run["seconds"] for run in each] for way, each in runs.items()}
    memory = {way: [run["peak_memory_mib"] for run in each] for way, each in runs.items()}
    ratios = {way: paired_ratios(seconds[way], seconds["ours"]) for way in ("original", "pytorch")}
    memory_ratios = paired_ratios(memory["ours"], memory["original"])
    print(f"  to the original's way {shown(ratios['original'])} x; to PyTorch {shown(ratios['pytorch'])} x")
    print(f"  peak memory, to the original's way: {shown(memory_ratios)}")
    return {
        "sentence_embedding_type": "avg-last-2",
        "flow_config": DEFAULT_CONFIG,
        "dtype": "float32",
        "sentences": len(sentences),
        "distinct_sentences": len(set(sentences)),
        "runs": runs,
        "ratios": ratios,
        "memory_ratios": memory_ratios,
        "figures": {
            "to_original": ratios["original"]["median"],
            "to_pytorch": ratios["pytorch"]["median"],
            "memory_to_original": memory_ratios["median"],
            **{
                f"spearman_from_{way}": abs(_mean(runs["ours"], "spearman") - _mean(runs[way], "spearman"))
                for way in ("original", "pytorch")
            },
        },
    }


def _median(runs: list[dict], name: str) -> float:
    return statistics.median(run[name] for run in runs)


def _mean(runs: list[dict], name: str) -> float:
    return statistics.fmean(run[name] for run in runs)


def _counted(run: Callable[..., dict], *arguments: Any) -> Callable[[], dict]:
    """Function without arguments that runs with the next seed."""
    seeds = itertools.count(FIRST_SEED)
    return lambda: run(*arguments, next(seeds))


def _run(options: Options, glue_dir: str, folder: pathlib.Path, flags: dict[str, str], seed: int) -> dict:
    """A run of `run_siamese` that trains and predicts in one process."""
    with tempfile.TemporaryDirectory(dir=folder) as parent:
        used = run_siamese(
            {
                "bert_hub": options.bert_hub,
                "task_name": "STS-B",
                "data_dir": f"{glue_dir}/STS-B",
                "output_parent_dir": parent,
                "exp_name": "run",
                "seed": seed,
                "sentence_embedding_type": "avg-last-2",
                "max_seq_length": MAX_SEQ_LENGTH,
                "num_examples": 0,
                "flow": 1,
                "flow_loss": 1,
                "flow_model_config": DEFAULT_CONFIG,
                "flow_learning_rate": LEARNING_RATE,
                "use_full_for_training": 1,
                "num_train_epochs": 1.0,
                "do_train": "true",
                "do_predict": "true",
                **flags,
            }
        )
        return used | _scored(pathlib.Path(parent) / "run" / "test_results.tsv", glue_dir, seed)


def _run_pytorch(options: Options, glue_dir: str, folder: pathlib.Path, weights: str, seed: int) -> dict:
    """A run of the PyTorch loop."""
    config = GlowConfig.from_name(DEFAULT_CONFIG)
    with tempfile.TemporaryDirectory(dir=folder) as parent:
        out = pathlib.Path(parent) / "predictions.tsv"
        flags = {
            "weights": weights,
            "out": out,
            "data_dir": f"{glue_dir}/STS-B",
            "max_seq_length": MAX_SEQ_LENGTH,
            "seed": seed,
            "learning_rate": LEARNING_RATE,
            "flow": json.dumps({"levels": config.n_levels, "depth": config.depth, "width": config.coupling_width}),
        }
        used = run_pytorch("benchmarks.peer_flow_run", options.threads, flags)
        return used | _scored(out, glue_dir, seed)


def _scored(predictions: pathlib.Path, glue_dir: str, seed: int) -> dict:
    cosines = read_predictions(predictions)
    spearman = score_predictions(cosines, "STS-B", glue_dir, "test").spearman
    return {"test_pairs": len(cosines), "spearman": spearman, "seed": seed}


def _quick_data(glue_dir: str, folder: pathlib.Path) -> str:
    """Path of a GLUE folder with the beginnings of STS-B's files."""
    source, out = pathlib.Path(glue_dir) / "STS-B", folder / "glue" / "STS-B"
    out.mkdir(parents=True)
    for name, header in (("train.tsv", 1), ("dev.tsv", 1), ("test.tsv", 1), ("sts-test.csv", 0)):
        lines = (source / name).read_text(encoding="utf-8").split("\n")
        (out / name).write_text("\n".join(lines[: header + QUICK_PAIRS]) + "\n", encoding="utf-8")
    return str(out.parent)
