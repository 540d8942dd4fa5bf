"""The encoder folder that a run of masked language modelling makes, and the run beside it; loads no TensorFlow."""

import os
import pathlib
from typing import Any

import msgspec

from bert_flow_tf.encoder.convert.folders import SOURCE_FILE
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, TRAIN_RESULTS_FILE
from bert_flow_tf.runs.pretraining import MASKED_LM, run_folder
from bert_flow_tf.runs.record import TrainingResults


def is_written(out_dir: str | os.PathLike) -> bool:
    """Whether an encoder folder is what the run beside it made at its end, and not what was there before."""
    path, source = run_folder(out_dir) / TRAIN_RESULTS_FILE, pathlib.Path(out_dir) / SOURCE_FILE
    if not path.exists() or not source.exists():
        return False
    results = read_json(path, TrainingResults, expected="a finished run's results")
    made = read_json(source, dict[str, Any], expected="what an encoder folder was made of")
    return all(made.get(name) == value for name, value in origin(results).items())


def origin(results: TrainingResults) -> dict[str, Any]:
    """What an encoder folder says of the run that made it."""
    return {
        "kind": MASKED_LM,
        "steps": results.steps,
        "dev_losses": results.dev_losses,
        "pooler": "as in the encoder that it started from",
        "training": msgspec.to_builtins(results.model.encoder.fine_tuning),
    }


def remove_needless_checkpoints(out_dir: str | os.PathLike) -> None:
    """Removes the checkpoints of a run that has written its encoder folder: nothing resumes from them."""
    if is_written(out_dir):
        run_dir = run_folder(out_dir)
        for path in (*run_dir.glob(f"{CHECKPOINT_NAME}-*"), *run_dir.glob("checkpoint")):
            path.unlink()
