"""A training run's folder: files, lock, checks for a resume.

    config.json                   model, data and settings (`training.run_records.RunConfig`)
    model.ckpt-N.*, checkpoint    the last checkpoints, and TensorFlow's record of the latest
    train_results.json            steps, seconds and memory of a finished run
    events.out.tfevents.*         losses and gradient norms for TensorBoard

N is a step.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_flow_tf.common.atomic import is_temporary, locked, remove
from bert_flow_tf.common.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import CONFIG_FILE, is_run, write_json
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.training.run_records import RunConfig, read_config

TRAIN_RESULTS_FILE = "train_results.json"
EVALUATION_FILE = "evaluation.json"
# The record of `eval_results.txt`, which alone has the figures.
DEV_RECORD_FILE = "eval_results.json"
CHECKPOINT_NAME = "model.ckpt"
KEEP_CHECKPOINT_MAX = 3

# A killed process leaves these temporary files of TensorFlow and `common.atomic`.
_UNFINISHED = (
    f"{CHECKPOINT_NAME}-*_temp",
    f"{CHECKPOINT_NAME}-*.tempstate*",
    "checkpoint.tmp*",
    ".*.tmp",
)


class FinishedRun(UserError):
    """The folder has a finished run with these settings and all results."""


@contextlib.contextmanager
def locked_run(run_dir: pathlib.Path) -> Iterator[None]:
    """Lock a run's folder; clean up after killed processes."""
    run_dir = run_dir.resolve()
    with locked(run_dir):
        if is_run(run_dir):
            data = run_dir.glob(f"{CHECKPOINT_NAME}-*.data-*")
            unindexed = [path for path in data if not path.with_suffix(".index").exists()]
            for path in (
                *unindexed,
                *(path for pattern in _UNFINISHED for path in run_dir.glob(pattern)),
            ):
                remove(path)
        yield


def remove_checkpoints(run_dir: pathlib.Path) -> None:
    """Delete a run's checkpoints and TensorFlow's list of them."""
    # A checkpoint without its index is none, so a killed command leaves no index without data.
    for pattern in (f"{CHECKPOINT_NAME}-*.index", f"{CHECKPOINT_NAME}-*", "checkpoint"):
        for path in run_dir.glob(pattern):
            path.unlink()


def checkpoint_steps(run_dir: pathlib.Path) -> list[int]:
    """Return the steps of a run's checkpoints in order."""
    numbers = (path.stem.rpartition("-")[2] for path in run_dir.glob(f"{CHECKPOINT_NAME}-*.index"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def remove_checkpoint(run_dir: pathlib.Path, step: int) -> None:
    """Delete one checkpoint, its index first."""
    for pattern in (f"{CHECKPOINT_NAME}-{step}.index", f"{CHECKPOINT_NAME}-{step}.data-*"):
        for path in run_dir.glob(pattern):
            path.unlink()


def pretraining_folder(out_dir: AnyPath) -> pathlib.Path:
    """Return the folder of the run that writes the encoder folder `out_dir`."""
    out = pathlib.Path(os.path.abspath(out_dir))
    return out.with_name(f"{out.name}.pretraining")


def clean_pretraining(out_dir: AnyPath) -> None:
    """Remove what a command killed after writing its encoder left."""
    run_dir = pretraining_folder(out_dir)
    if os.path.exists(out_dir) and (run_dir / TRAIN_RESULTS_FILE).exists():
        with locked(out_dir), locked_run(run_dir):
            # Another command may have started again before the lock was taken.
            if (run_dir / TRAIN_RESULTS_FILE).exists():
                remove_checkpoints(run_dir)


def config_of_checkpoint(prefix: pathlib.Path) -> RunConfig | None:
    """Return the `config.json` of a run's checkpoint; None for other checkpoints."""
    # A TF1 checkpoint may lie beside another program's config.json.
    is_runs = (
        prefix.parent / CONFIG_FILE
    ).is_file() and "_CHECKPOINTABLE_OBJECT_GRAPH" in Checkpoint(prefix).shapes
    return read_config(prefix.parent) if is_runs else None


def check_finished(run_dir: pathlib.Path) -> None:
    """Raise `UserError` for an unfinished run.

    Call this only if no checkpoint is named.
    """
    if not (run_dir / TRAIN_RESULTS_FILE).is_file():
        raise UserError(
            f"{run_dir}: training has not finished; rerun the same command to resume, or name a "
            "checkpoint"
        )


def run_checkpoint(run: AnyPath) -> tuple[pathlib.Path, RunConfig]:
    """Return prefix and configuration of a run's checkpoint.

    It is the last checkpoint of a finished run, or a named one.
    """
    prefix = checkpoint_prefix(run)
    if (config := config_of_checkpoint(prefix)) is None:
        raise UserError(
            f"{prefix}: found no {CONFIG_FILE} beside it, expected a checkpoint of a bert_flow_tf "
            "run"
        )
    if os.path.isdir(run):
        check_finished(prefix.parent)
    return prefix, config


def run_step(prefix: AnyPath) -> int:
    return int(Checkpoint(prefix)["step/.ATTRIBUTES/VARIABLE_VALUE"])


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    keys = (key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))
    return [f"{key} is {old.get(key)!r}, not {new.get(key)!r}" for key in keys]


def check_run(
    run_dir: pathlib.Path,
    config: RunConfig,
    overwrite: bool,
    missing_outputs: Sequence[pathlib.Path] = (),
) -> bool:
    """Return True to resume a run, False to start one.

    A run is finished if it is trained and no output is missing. Its settings are
    `RunConfig.identity`.

    Raises:
      FinishedRun: the folder has a finished run of these settings, and `overwrite` is false.
      UserError: it has a run of other settings or other files, and `overwrite` is false.
    """
    old = None if overwrite else read_config(run_dir)
    if old is None:
        if not overwrite and _contents(run_dir):
            raise UserError(
                f"{run_dir}: found files without {CONFIG_FILE}, expected an empty or a new folder"
            )
        return False
    if differing := differences(old.identity, config.identity):
        hint = "expected the same; use another folder, or --overwrite to delete the run"
        raise UserError(
            f"{run_dir}: found a run with other settings ({'; '.join(differing)}), {hint}"
        )
    if (run_dir / TRAIN_RESULTS_FILE).exists() and not missing_outputs:
        raise FinishedRun(
            f"{run_dir}: found a finished run of these settings (use --overwrite to train again)"
        )
    return True


def start_run(
    run_dir: pathlib.Path,
    config: RunConfig,
    overwrite: bool,
    results: re.Pattern[str] | None = None,
) -> None:
    """Write `config.json` into the folder; with `overwrite`, see `clear_run`."""
    if overwrite:
        clear_run(run_dir, results)
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(run_dir / CONFIG_FILE, config)


def clear_run(run_dir: pathlib.Path, results: re.Pattern[str] | None = None) -> None:
    """Delete a run, or files named like `results`, but keep the folder.

    `train_results.json` is deleted first and `config.json` last, so that a killed command leaves an
    unfinished run.
    """
    paths = _contents(run_dir)
    if (
        paths
        and not is_run(run_dir)
        and not (results and all(path.is_file() and results.fullmatch(path.name) for path in paths))
    ):
        raise UserError(
            f"{run_dir}: found files without {CONFIG_FILE}, expected a run or an empty folder"
        )
    order = {TRAIN_RESULTS_FILE: -1, CONFIG_FILE: 1}
    for path in sorted(paths, key=lambda path: order.get(path.name, 0)):
        remove(path)


def _contents(run_dir: pathlib.Path) -> list[pathlib.Path]:
    return (
        [path for path in run_dir.iterdir() if not is_temporary(path.name)]
        if run_dir.exists()
        else []
    )
