"""Train and score the flow on STS-B, beside a PyTorch loop.

Both sides are whole processes. The loop uses transformers' BERT, pads to the longest sentence of a
batch, and has dropout while the flow learns. Each repeat has its own seed. Spearman is measured on
the test set.
"""

import contextlib
import itertools
import json
import pathlib
import tempfile
from collections.abc import Callable

from benchmarks import peers
from benchmarks.processes import Side
from benchmarks.run import Options
from bert_flow_tf.tasks.protocols import read_predictions, score_predictions
from bert_flow_tf.tasks.tasks import TASKS
from glow.config import DEFAULT_CONFIG, GlowConfig

LEARNING_RATE = 1e-3


def functions(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:
    found = {name: _counted(_run, options, side) for name, side in options.ours.items()}
    if options.with_peers:
        weights = peers.write_weights(options.bert_hub, options.folder / "weights")
        found["PyTorch"] = _counted(_run_pytorch, options, weights)
    return found


def _counted(run: Callable[..., dict], *arguments: object) -> Callable[[], dict]:
    """Return a function that runs with the next seed."""
    seeds = itertools.count(1234)
    return lambda: run(*arguments, next(seeds))


def flow_flags(data_dir: str, bert_hub: str, parent: str, seed: int) -> dict[str, object]:
    """Return the flags of `run_siamese` for the original's flow run on STS-B."""
    return {
        "bert_hub": bert_hub,
        "task_name": "STS-B",
        "data_dir": data_dir,
        "output_parent_dir": parent,
        "exp_name": "run",
        "seed": seed,
        "sentence_embedding_type": "avg-last-2",
        "max_seq_length": 64,
        "num_examples": 0,
        "flow": 1,
        "flow_loss": 1,
        "flow_model_config": DEFAULT_CONFIG,
        "flow_learning_rate": LEARNING_RATE,
        "use_full_for_training": 1,
        "num_train_epochs": 1.0,
        "do_train": "true",
        "do_predict": "true",
    }


def _run(options: Options, side: Side, seed: int) -> dict:
    with tempfile.TemporaryDirectory(dir=options.folder) as parent:
        flags = flow_flags(f"{options.glue_dir}/STS-B", options.bert_hub, parent, seed)
        used = side.run(
            "-m",
            "bert_flow_tf.run_siamese",
            *(f"--{name}={value}" for name, value in flags.items()),
        )
        return used | _scored(options, pathlib.Path(parent, "run", "test_results.tsv"))


def _run_pytorch(options: Options, weights: pathlib.Path, seed: int) -> dict:
    config = GlowConfig.load(DEFAULT_CONFIG)
    out = options.folder / "predictions.tsv"
    flow = {"levels": config.n_levels, "depth": config.depth, "width": config.coupling_width}
    data_dir = f"{options.glue_dir}/STS-B"
    arguments = (weights, data_dir, out, json.dumps(flow), LEARNING_RATE, seed)
    return peers.peer().run("-m", "benchmarks.torch_peers", "flow_run", *arguments) | _scored(
        options, out
    )


def _scored(options: Options, predictions: pathlib.Path) -> dict:
    scores = score_predictions(
        read_predictions(predictions), TASKS["sts-b"], options.glue_dir, "test"
    )
    return {"spearman": scores["spearman"]}
