"""The directory of one run: what is in it, and whether a command may start or resume a run in it.

    config.json                     what the run is: model, data, flags (`runs.record.RunConfig`)
    model.ckpt-N.*, checkpoint      the last three checkpoints, of step N, and TensorFlow's name of the latest
    train_results.json              of a finished run: steps, seconds, memory
    early_stopping.json             dev score at each epoch's step, with `--early_stopping`
    events.out.tfevents.*           losses and gradient norms, for TensorBoard
    embeddings-KEY.npz              a frozen encoder's embeddings, unless `--cached_dir` names a place for them
    eval_results.txt                metrics on dev
    SPLIT_results.tsv, .json        a cosine per pair, and what they are of
    SPLIT_pooled.tsv, .json         the same of both embeddings per pair, with `--predict_pool`
    model.ckpt-N.SPLIT_…            the same of the checkpoint that `--eval_checkpoint_name` names
    recipe_scores.json              the recipe's scores of the predictions
    evaluation.json                 what `--do_senteval` or `bert-flow evaluate --model` wrote

N is a step; SPLIT is test, dev or full.
"""

import contextlib
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import is_temporary, locked, remove, write_atomically
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.files.reading import read_text
from bert_flow_tf.runs.record import CONFIG_FILE, Result, RunConfig, is_run, read_config

DEV_RESULTS_FILE = "eval_results.txt"
EVALUATION_FILE = "evaluation.json"
TRAIN_RESULTS_FILE = "train_results.json"
CHECKPOINT_NAME = "model.ckpt"
KEEP_CHECKPOINT_MAX = 3

# Evaluation, prediction and the cache write these, a checkpoint's name before them or not.
_RESULT = re.compile(
    r"(model\.ckpt-\d+\.)?((test|dev|full)_(results|pooled)\.(tsv|json)|eval_results\.txt|recipe_scores\.json"
    r"|evaluation\.json|embeddings-[0-9a-f]+\.npz)"
)
# A killed process leaves these, TensorFlow of a checkpoint and `files.atomic` of a file.
_UNFINISHED = (f"{CHECKPOINT_NAME}-*_temp", f"{CHECKPOINT_NAME}-*.tempstate*", "checkpoint.tmp*", ".*.tmp")


class FinishedRun(UserError):
    """A finished run of the same settings is in the folder, and nothing that was asked for is missing."""


@contextlib.contextmanager
def locked_run(run_dir: pathlib.Path) -> Iterator[None]:
    """Lock a run's directory; remove first what killed processes left in it.

    Raises:
      UserError: another process is using the directory, or it cannot be written to.
    """
    run_dir = run_dir.resolve()
    with locked(run_dir):
        if is_run(run_dir):
            data = run_dir.glob(f"{CHECKPOINT_NAME}-*.data-*")
            left = [path for path in data if not path.with_suffix(".index").exists()]
            for path in (*left, *(path for pattern in _UNFINISHED for path in run_dir.glob(pattern))):
                remove(path)
        yield


def write_result(path: pathlib.Path, text: str, overwrite: bool, record: Result | None = None) -> None:
    """Write a result file, and its record beside it, as `.json`.

    Raises:
      UserError: the file exists, differs, and `overwrite` is false.
    """
    if path.exists() and not overwrite and read_text(path, "results") != text:
        raise UserError(f"{path}: found results of other settings, expected none (use --overwrite to replace them)")
    path.parent.mkdir(parents=True, exist_ok=True)
    if record is not None:
        # An interrupted command leaves no result without its record, nor one beside the record of another.
        if overwrite:
            path.unlink(missing_ok=True)
        write_json(path.with_suffix(".json"), record)
    write_atomically(path, text)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name each setting in which two dictionaries of settings differ, with both values."""
    keys = (key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))
    return [f"{key} is {old.get(key)!r} there and {new.get(key)!r} here" for key in keys]


def check_run(
    run_dir: pathlib.Path, config: RunConfig, overwrite: bool, missing_outputs: Sequence[pathlib.Path] = ()
) -> bool:
    """Return True if a run's directory holds an unfinished run of the same settings, False for one to begin.

    A run is finished when it is trained and no result that its command asks for is missing. Runs of one
    `RunConfig.identity` are the same.

    Raises:
      FinishedRun: the directory holds a finished run of these settings, and `overwrite` is false.
      UserError: it holds a run with other settings or something else, and `overwrite` is false.
    """
    old = None if overwrite else read_config(run_dir)
    if old is None:
        if not overwrite and _contents(run_dir):
            raise UserError(f"{run_dir}: found files and no {CONFIG_FILE}, expected an empty directory or none")
        return False
    if differing := differences(old.identity, config.identity):
        hint = "expected the same ones, another folder, or --overwrite to delete it"
        raise UserError(f"{run_dir}: found a run with other settings ({'; '.join(differing)}), {hint}")
    if (run_dir / TRAIN_RESULTS_FILE).exists() and not missing_outputs:
        raise FinishedRun(f"{run_dir}: found a finished run of these settings (use --overwrite to train again)")
    return True


def begin_run(run_dir: pathlib.Path, config: RunConfig, overwrite: bool) -> None:
    """Make a run's directory with its `config.json`; with `overwrite`, `clear_run` comes first."""
    if overwrite:
        clear_run(run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    write_json(run_dir / CONFIG_FILE, config)


def clear_run(run_dir: pathlib.Path) -> None:
    """Remove a run, or results of an encoder as it is, from a directory; the directory stays, and so does a link to it.

    `train_results.json` goes first and `config.json` last: killed here, a command leaves an unfinished run.

    Raises:
      UserError: the directory holds something else.
    """
    left = _contents(run_dir)
    if left and not is_run(run_dir) and not all(path.is_file() and _RESULT.fullmatch(path.name) for path in left):
        raise UserError(f"{run_dir}: found files and no {CONFIG_FILE}, expected a run or an empty directory")
    order = {TRAIN_RESULTS_FILE: -1, CONFIG_FILE: 1}
    for path in sorted(left, key=lambda path: order.get(path.name, 0)):
        remove(path)


def _contents(run_dir: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in run_dir.iterdir() if not is_temporary(path.name)] if run_dir.exists() else []
