"""A run of training as a process of its own, ours or a PyTorch loop: its seconds, stages and peak memory.

Nothing here loads TensorFlow, see `timing.whole_process`.
"""

import json
import pathlib
import sys
from typing import Any

from benchmarks import peers
from benchmarks.timing import whole_process
from bert_flow_tf.errors import UserError
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE


def run_siamese(flags: dict[str, Any], module: str = "bert_flow_tf.run_siamese") -> dict:
    """dict of `seconds`, `peak_memory_mib`, `stages` and `steps` of `run_siamese`, or `module`, with these flags."""
    command = [sys.executable, "-m", module, *_arguments(flags)]
    used = whole_process(command, cwd=peers.ROOT)
    run = pathlib.Path(flags["output_parent_dir"]) / flags["exp_name"]
    results = json.loads((run / TRAIN_RESULTS_FILE).read_text())
    return _described(used, {name: stage["seconds"] for name, stage in results["stages"].items()}, results["steps"])


def run_pytorch(module: str, threads: int, flags: dict[str, Any]) -> dict:
    """The same of a module of the peers' that prints `stages`, `steps` and `threads`.

    Raises:
      UserError: it took another number of threads than `threads`.
    """
    command = [str(peers.peers_python()), "-m", module, *_arguments(flags)]
    used = whole_process(command, cwd=peers.ROOT, env=peers.peer_environment())
    printed = json.loads(used["output"])
    if printed["threads"] != threads:
        raise UserError(f"PyTorch: found {printed['threads']} threads, expected {threads}")
    return _described(used, printed["stages"], printed["steps"])


def _arguments(flags: dict[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def _described(used: dict, stages: dict[str, float], steps: int) -> dict:
    return {
        "seconds": used["seconds"],
        "peak_memory_mib": used["peak_memory_mib"],
        "stages": stages | {"the rest": used["seconds"] - sum(stages.values())},
        "steps": steps,
    }
