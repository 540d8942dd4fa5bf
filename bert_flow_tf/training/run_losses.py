"""Read the losses of a saved model or of a run."""

import pathlib
from typing import NamedTuple

from bert_flow_tf.common.errors import UserError, warn_user
from bert_flow_tf.common.json_files import is_run, read_json
from bert_flow_tf.common.losses import BITS, Losses, saved_losses
from bert_flow_tf.common.reading import AnyPath, reading
from bert_flow_tf.common.records import MASKED_LM
from bert_flow_tf.training.run_folder import TRAIN_RESULTS_FILE
from bert_flow_tf.training.run_records import RunConfig, TrainingResults, read_config

_EVENTS = "events.out.tfevents.*"


def read_losses(folder: AnyPath) -> Losses:
    """Return the losses of a saved model, a calibration or a run.

    A file of events is read up to its first incomplete or damaged record, with a warning. Raises
    `UserError` if the folder has no losses.
    """
    found, stops = read_up_to_damage(folder)
    for stop in stops:
        warn_user(f"{stop.path}: {stop.reason}")
    if found is None:
        raise UserError(
            f"{folder}: found no losses, expected a model whose flow `fit` learned, or a run"
        )
    return found


class Stop(NamedTuple):
    """A file of events that is not read to its end.

    `is_damaged` is false if the last record is incomplete: a run that still trains writes it, and
    a killed one leaves it.
    """

    path: pathlib.Path
    is_damaged: bool

    @property
    def reason(self) -> str:
        found = "damaged" if self.is_damaged else "still being written, or cut"
        return f"{found}; its losses are shown up to there"


class ReadLosses(NamedTuple):
    """The losses of a folder, and files not read to their ends."""

    losses: Losses | None
    stops: list[Stop]


def read_up_to_damage(folder: AnyPath) -> ReadLosses:
    """Return the losses as `read_losses` does, without a warning.

    A file of events counts up to its first incomplete or damaged record.
    """
    path = pathlib.Path(folder)
    found = saved_losses(path)
    if found is not None or not is_run(path):
        return ReadLosses(found, [])
    stops: list[Stop] = []
    scalars = _scalars(path, stops)
    return ReadLosses(_losses_of_run(path, scalars), stops)


def _losses_of_run(folder: pathlib.Path, scalars: dict[str, dict[int, float]]) -> Losses | None:
    """Return the losses in a run's scalars; None without any."""
    config = read_config(folder)
    if config is None or "loss" not in scalars:
        return None
    losses = scalars["loss"]
    unit = _unit(config)
    if unit == BITS:
        # The events have the sum of a pair's two sentences.
        losses = {step: loss / 2 for step, loss in scalars["flow_loss"].items()}
    results = folder / TRAIN_RESULTS_FILE
    held_out = scalars.get("dev_loss", {})
    if results.is_file():
        finished = read_json(results, TrainingResults, expected="a finished run's results")
        held_out = held_out | finished.dev_losses
    return Losses(made_by=config.made_by, unit=unit, training=losses, held_out=held_out)


def _unit(config: RunConfig) -> str:
    tuned = config.model.encoder.fine_tuning
    if tuned is not None and tuned.settings.get("objective") == MASKED_LM:
        return "nats per predicted piece"
    if config.model.flow is not None and config.flags.get("flow_loss"):
        return BITS
    return "nats per pair" if config.num_labels else "squared error of the cosine"


def _scalars(folder: pathlib.Path, stops: list[Stop]) -> dict[str, dict[int, float]]:
    """Return TensorBoard's scalars of a run by name and step.

    Each attempt to train has a file; a later one has the steps that were taken again. Files are
    read as far as TensorBoard reads them; those that end before are added to `stops`.
    """
    # Importing TensorFlow takes seconds, which a saved model's losses do not need.
    import tensorflow as tf

    found: dict[str, dict[int, float]] = {}
    # Their names have the second at which each started.
    for path in sorted(folder.glob(_EVENTS)):
        events = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        with reading(path, "TensorBoard's events"):
            while True:
                try:
                    data = next(events)
                except StopIteration:
                    break
                except tf.errors.DataLossError as error:
                    # TensorFlow tells by these words alone that a file ends within a record.
                    is_damaged = "truncated record" not in error.message
                    stops.append(Stop(path, is_damaged))
                    break
                event = tf.compat.v1.Event.FromString(data)
                for value in event.summary.value:
                    scalar = float(tf.make_ndarray(value.tensor))
                    found.setdefault(value.tag, {})[event.step] = scalar
    return {name: dict(sorted(steps.items())) for name, steps in found.items()}
