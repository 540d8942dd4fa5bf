"""The flow learned on STS-B, all splits, one epoch, and its test set scored: whole processes, time and peak memory.

Five ways, in turn, with a seed of its own for each repeat:

- ours: `run_siamese` as its users call it. The frozen encoder's embeddings are computed ahead of the flow's steps, with
  dropout, sentences of like length together.
- cached: with `--cache_embeddings`. Every sentence is embedded once, without dropout.
- the original's: our own code made to work as it does (`original_way`). In every step the encoder's SavedModel
  runs, with dropout, and everything is padded to 64. What it leaves out is the original's reversal of channels as a
  product with a constant matrix: there is no such option here, so the baseline is a little faster than the original.
- a PyTorch loop (`peer_flow_run`): transformers' BERT, padded to the longest of the batch, without and with dropout.

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

# Name -> module and flags.
WAYS = {
    "ours": ("bert_flow_tf.run_siamese", {}),
    "cached": ("bert_flow_tf.run_siamese", {"cache_embeddings": "true"}),
    "original": ("benchmarks.original_way", {"pad_to_max_seq_length": "true"}),
}
PYTORCH_WAYS = {"pytorch": {}, "pytorch_dropout": {"dropout": 1}}
# Name -> the ways whose seconds are compared, the first one's over the second one's.
RATIOS = {
    "to_original": ("original", "ours"),
    "to_cached": ("ours", "cached"),
    "to_pytorch": ("pytorch_dropout", "ours"),
    "cached_to_pytorch": ("pytorch", "cached"),
}
MAX_SEQ_LENGTH = 64
LEARNING_RATE = 1e-3
FIRST_SEED = 1234
QUICK_PAIRS = 64


def measure(options: Options) -> dict:
    """dict of times, memory, Spearman, ratios and figures of the five ways; see `run`."""
    with tempfile.TemporaryDirectory() as workspace:
        folder = pathlib.Path(workspace)
        weights = hugging_face_folder(options.bert_hub, folder / "weights")
        glue_dir = _quick_data(options.glue_dir, folder) if options.quick else options.glue_dir
        ways = {way: _counted(_run, options, glue_dir, folder, *each) for way, each in WAYS.items()}
        for way, flags in PYTORCH_WAYS.items():
            ways[way] = _counted(_run_pytorch, options, glue_dir, folder, weights, flags)
        runs = in_turn(ways, options.repeats)
        sentences = corpus.all_sentences(dataclasses.replace(options, glue_dir=glue_dir, quick=False))
    for way, each in runs.items():
        print(
            f"  {way:15} {_median(each, 'seconds'):8.1f} s  {_median(each, 'peak_memory_mib'):6.0f} MiB  "
            f"Spearman {_mean(each, 'spearman'):.4f}"
        )
        for stage, seconds in each[-1]["stages"].items():
            print(f"    {stage:13} {seconds:8.1f} s")
    seconds = {way: [run["seconds"] for run in each] for way, each in runs.items()}
    memory = {way: [run["peak_memory_mib"] for run in each] for way, each in runs.items()}
    ratios = {name: paired_ratios(seconds[a], seconds[b]) for name, (a, b) in RATIOS.items()}
    for name, (a, b) in RATIOS.items():
        print(f"  {a} to {b}: {shown(ratios[name])} x")
    return {
        "sentence_embedding_type": "avg-last-2",
        "flow_config": DEFAULT_CONFIG,
        "dtype": "float32",
        "sentences": len(sentences),
        "distinct_sentences": len(set(sentences)),
        "runs": runs,
        "ratios": ratios,
        "figures": {
            **{name: ratio["median"] for name, ratio in ratios.items()},
            "spearman_from_original": abs(_mean(runs["ours"], "spearman") - _mean(runs["original"], "spearman")),
            "spearman_from_pytorch": abs(_mean(runs["ours"], "spearman") - _mean(runs["pytorch_dropout"], "spearman")),
            "peak_memory_mib": statistics.median(memory["ours"]),
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


def _run(options: Options, glue_dir: str, folder: pathlib.Path, module: str, flags: dict[str, str], seed: int) -> dict:
    """A run of `run_siamese`, as `module` has it, that trains and predicts in one process."""
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
            },
            module,
        )
        return used | _scored(pathlib.Path(parent) / "run" / "test_results.tsv", glue_dir, seed)


def _run_pytorch(
    options: Options, glue_dir: str, folder: pathlib.Path, weights: str, more_flags: dict[str, int], seed: int
) -> dict:
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
            **more_flags,
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
