"""The stages and the results of a resumable training run."""

import resource
import time

from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.records import RunConfig, StageCost, TrainingResults, model_at
from bert_flow_tf.training.run_folder import TRAIN_RESULTS_FILE


class Stages:
    """Measure wall time and peak memory of each stage."""

    def __init__(self) -> None:
        self.ended: dict[str, StageCost] = {}
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.ended[name] = StageCost(seconds=round(now - self._since, 3), peak_memory_mib=peak)
        self._since = now


def write_results(
    config: RunConfig,
    checkpoints: callbacks.Checkpoints,
    stages: Stages,
    dev_losses: dict[int, float],
) -> TrainingResults:
    """Write and return a finished run's `train_results.json`."""
    results = TrainingResults(
        made_by=config.made_by,
        model=model_at(config, str(checkpoints.latest)),
        steps=int(checkpoints.step),
        stages=stages.ended,
        dev_losses=dev_losses,
    )
    write_json(checkpoints.run_dir / TRAIN_RESULTS_FILE, results)
    return results
