"""Continue a run with more epochs, bit for bit.

This needs training steps that do not depend on the total: those of a flow on a frozen encoder, at a
constant learning rate.
"""

import dataclasses
import logging
import pathlib

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import CONFIG_FILE, write_json
from bert_flow_tf.original.folder import RESULT
from bert_flow_tf.original.pairs import group_steps
from bert_flow_tf.original.settings import RunSettings, TrainingSettings
from bert_flow_tf.training.run_folder import (
    CHECKPOINT_NAME,
    TRAIN_RESULTS_FILE,
    checkpoint_steps,
    differences,
    remove_checkpoint,
)
from bert_flow_tf.training.run_records import RunConfig, read_config

logger = logging.getLogger(__name__)

_EPOCHS = "num_train_epochs"


def can_continue(folder: pathlib.Path, config: RunConfig, settings: RunSettings) -> bool:
    """Return True if the folder has this run with fewer epochs.

    Raises:
      UserError: it has, and the steps depend on the number of epochs.
    """
    old = read_config(folder)
    if old is None or settings.overwrite:
        return False
    others = [name for name in old.identity if old.identity[name] != config.identity.get(name)]
    if others != [_EPOCHS] or _epochs(old) > _epochs(config):
        return False
    if not settings.losses.encoder_is_frozen:
        changed = "; ".join(differences(old.identity, config.identity))
        raise UserError(
            f"{folder}: found a run with other settings ({changed}), expected the same, because "
            "the encoder's learning rate depends on the number of all steps; use another folder, "
            "or --overwrite to delete the run"
        )
    return True


def continue_run(
    folder: pathlib.Path, config: RunConfig, settings: RunSettings, num_examples: int
) -> None:
    """Make the folder's run an interrupted run with more epochs.

    Results keep the name of their checkpoint, as with `--eval_checkpoint_name`.
    """
    old = read_config(folder)
    assert old is not None, "can_continue has read it"
    steps = checkpoint_steps(folder)
    if steps and (folder / TRAIN_RESULTS_FILE).exists():
        _rename_results(folder, f"{CHECKPOINT_NAME}-{steps[-1]}")
    (folder / TRAIN_RESULTS_FILE).unlink(missing_ok=True)
    training = dataclasses.replace(settings.training, num_train_epochs=_epochs(old))
    kept = _last_same_step(training, training.total_steps(num_examples))
    for step in steps:
        if step > kept:
            remove_checkpoint(folder, step)
    # The configuration is written last, so that a killed command is repeated from the start.
    write_json(folder / CONFIG_FILE, config)
    logger.info("Continuing a run of %g epochs, up to %g epochs", _epochs(old), _epochs(config))


def _epochs(config: RunConfig) -> float:
    epochs = config.flags[_EPOCHS]
    assert isinstance(epochs, int | float), "a flag of this type"
    return float(epochs)


def _last_same_step(training: TrainingSettings, old_total: int) -> int:
    """Return the last step whose bits do not depend on the total."""
    if training.cache_embeddings:
        return old_total
    # The last sentences before the end were embedded in a smaller group, which changes last bits.
    group = group_steps(training.train_batch_size)
    skipped = int(training.flow_ddi)
    return (old_total + skipped) // group * group - skipped


def _rename_results(folder: pathlib.Path, checkpoint: str) -> None:
    for path in sorted(folder.iterdir()):
        is_result = RESULT.fullmatch(path.name) and path.suffix != ".npz"
        if is_result and not path.name.startswith(CHECKPOINT_NAME):
            path.replace(folder / f"{checkpoint}.{path.name}")
