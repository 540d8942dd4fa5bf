"""The losses of a training by step, in a file."""

import pathlib

import msgspec

from bert_flow_tf.common.json_files import Count, read_json, write_json
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import Result

LOSSES_FILE = "losses.json"
BITS = "bits per dimension"


class Losses(Result, frozen=True, kw_only=True, tag="losses"):
    """The losses of a training by step."""

    unit: str
    training: dict[Count, float]
    # of held-out sentences; empty without any
    held_out: dict[Count, float] = msgspec.field(default_factory=dict)


def write_losses(folder: pathlib.Path, losses: Losses | None) -> None:
    """Write the file beside a model that was trained; None writes nothing."""
    if losses is not None:
        write_json(folder / LOSSES_FILE, losses)


def saved_losses(folder: AnyPath) -> Losses | None:
    """Return the losses beside a saved model; None if it has none."""
    path = pathlib.Path(folder) / LOSSES_FILE
    return read_json(path, Losses, expected="a training's losses") if path.is_file() else None
