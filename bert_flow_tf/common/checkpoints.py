"""Find and read TensorFlow's checkpoints."""

import logging
import os
import pathlib
import re
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.common.atomic import full_disk_as_error
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import read_text, reading

if TYPE_CHECKING:
    import tensorflow as tf

logger = logging.getLogger(__name__)


class Checkpoint:
    """The variables of a TF1 or TF2 checkpoint, by name."""

    def __init__(self, prefix: str | os.PathLike) -> None:
        import tensorflow as tf

        self.prefix = pathlib.Path(prefix)
        with reading(prefix, "a checkpoint"):
            self._reader = tf.train.load_checkpoint(str(prefix))
        self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a variable's value; raise `UserError` for damaged files."""
        with reading(self.prefix, "a checkpoint"):
            return self._reader.get_tensor(name)

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """Return values by name, by default all."""
        return {name: self[name] for name in (self.shapes if names is None else names)}


def checkpoint_prefix(checkpoint: str | os.PathLike) -> pathlib.Path:
    """Return the prefix of a checkpoint, given as prefix, file or folder.

    If a folder has several, prefer `bert_model.ckpt`, then the one named in TensorFlow's file
    `checkpoint`.

    Raises:
      UserError: the folder has no checkpoint, or several without a preferred one.
    """
    path = pathlib.Path(re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", os.fspath(checkpoint)))
    if not path.is_dir():
        if not pathlib.Path(f"{path}.index").is_file():
            raise UserError(
                f"{path}: no such folder, and no {path.name}.index of a checkpoint beside it"
            )
        return path
    if (path / "bert_model.ckpt.index").is_file():
        return path / "bert_model.ckpt"
    found = sorted(file.with_suffix("") for file in path.glob("*.index"))
    latest = named_checkpoint(path) if len(found) > 1 else None
    if latest is None and len(found) != 1:
        raise UserError(
            f"{path}: found {', '.join(one.name for one in found) or 'no checkpoint'}, expected one"
        )
    return pathlib.Path(latest or found[0])


def named_checkpoint(folder: pathlib.Path) -> str | None:
    """Return the prefix that a folder's file `checkpoint` names, or None."""
    path = folder / "checkpoint"
    expected = "TensorFlow's list of checkpoints"
    if not path.exists():
        return None
    found = re.search(r'^model_checkpoint_path: "(.+)"$', read_text(path, expected), re.MULTILINE)
    if not found:
        raise UserError(f"{path}: found no model_checkpoint_path, expected {expected}")
    return str(folder / found[1])


def last_readable_checkpoint(
    folder: pathlib.Path, name: str, kept: int, *, remove: bool
) -> str | None:
    """Return the prefix of the last checkpoint `name-STEP`, or None.

    If the last checkpoint is damaged, warn and return None. With `remove`, try earlier ones
    instead, delete all but the last `kept`, and list these in TensorFlow's file `checkpoint`.
    """
    numbers = (path.stem.removeprefix(f"{name}-") for path in folder.glob(f"{name}-*.index"))
    steps = sorted(int(number) for number in numbers if number.isdecimal())
    prefixes = [folder / f"{name}-{step}" for step in steps]
    while prefixes:
        try:
            # Reading checks TensorFlow's checksums.
            Checkpoint(prefixes[-1]).read()
            break
        except UserError as error:
            logger.warning("%s; it is skipped", error)
            prefixes = prefixes[:-1] if remove else []
    if remove and prefixes:
        for old in prefixes[:-kept]:
            for path in (*folder.glob(f"{old.name}.index"), *folder.glob(f"{old.name}.data-*")):
                path.unlink()
        from tensorflow.compat.v1 import train

        paths = [str(prefix) for prefix in prefixes[-kept:]]
        # Without times, TensorFlow would forget all but the last checkpoint.
        times = [os.stat(f"{path}.index").st_mtime for path in paths]
        train.update_checkpoint_state(
            str(folder), paths[-1], paths, all_model_checkpoint_timestamps=times
        )
    return str(prefixes[-1]) if prefixes else None


def save_checkpoint(manager: "tf.train.CheckpointManager", number: int) -> None:
    folder = pathlib.Path(manager.directory)
    # TensorFlow would write through a link at the index's name.
    for index in folder.glob(f"*-{number}.index"):
        if index.is_symlink():
            index.unlink()
    try:
        with full_disk_as_error(folder / f"checkpoint {number}"):
            # A resumed run would have another counter, and so other bytes in its checkpoint.
            manager.checkpoint.save_counter.assign(0)
            manager.save(checkpoint_number=number)
    finally:
        for temporary in folder.glob(f"*-{number}_temp"):
            shutil.rmtree(temporary)
