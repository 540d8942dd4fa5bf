"""TensorFlow's checkpoints: found by their folder or prefix, opened, and read by name."""

import os
import pathlib
import re
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import full_disk_as_error
from bert_flow_tf.files.reading import read_text, reading

# TensorFlow takes seconds to load: not for a mistake in a prefix.
if TYPE_CHECKING:
    import tensorflow as tf


class Checkpoint:
    """The variables of a checkpoint, of TF1 or TF2, by name; `prefix` is the path of its files without their endings.

    Raises:
      UserError: the checkpoint cannot be read.
    """

    def __init__(self, prefix: str | os.PathLike) -> None:
        import tensorflow as tf

        self.prefix = pathlib.Path(prefix)
        with reading(prefix, "a checkpoint"):
            self._reader = tf.train.load_checkpoint(str(prefix))
        self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the value of a variable; a `UserError` where the checkpoint's files do not belong together."""
        with reading(self.prefix, "a checkpoint"):
            return self._reader.get_tensor(name)

    def read(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """dict of name -> value of these variables; None for all."""
        return {name: self[name] for name in (self.shapes if names is None else names)}


def checkpoint_prefix(checkpoint: str | os.PathLike) -> pathlib.Path:
    """Return the checkpoint's prefix, given the prefix itself or a folder that holds a checkpoint.

    Of several in a folder it is `bert_model.ckpt`, else the one that the folder's file `checkpoint` names.

    Raises:
      UserError: there is no checkpoint, or several and none is named.
    """
    path = pathlib.Path(checkpoint)
    if not path.is_dir():
        if not pathlib.Path(f"{path}.index").is_file():
            raise UserError(f"{path}: neither a folder nor a checkpoint's prefix: there is no {path.name}.index")
        return path
    if (path / "bert_model.ckpt.index").is_file():
        return path / "bert_model.ckpt"
    found = sorted(file.with_suffix("") for file in path.glob("*.index"))
    latest = named_checkpoint(path) if len(found) > 1 else None
    if latest is None and len(found) != 1:
        raise UserError(f"{path}: found {', '.join(one.name for one in found) or 'no checkpoint'}, expected one")
    return pathlib.Path(latest or found[0])


def named_checkpoint(folder: pathlib.Path) -> str | None:
    """Return the prefix that TensorFlow's file `checkpoint` in the folder names; None without that file."""
    path, expected = folder / "checkpoint", "TensorFlow's list of checkpoints"
    if not path.exists():
        return None
    found = re.search(r'^model_checkpoint_path: "(.+)"$', read_text(path, expected), re.MULTILINE)
    if not found:
        raise UserError(f"{path}: found no model_checkpoint_path, expected {expected}")
    return str(folder / found[1])


def checkpoint_files(prefix: str | os.PathLike) -> dict[str, pathlib.Path]:
    """dict of name -> path of the files of the checkpoint with this prefix, its data before its index."""
    prefix = pathlib.Path(prefix)
    name = re.compile(rf"{re.escape(prefix.name)}\.(data-\d+-of-\d+|index)")
    return {path.name: path for path in sorted(prefix.parent.iterdir()) if name.fullmatch(path.name)}


def whole_checkpoint(folder: pathlib.Path, name: str, kept: int, *, remove: bool) -> str | None:
    """Prefix of the last checkpoint `name-STEP` in the folder, if it can be read, else None.

    With `remove` it is the last one that can be read; damaged ones after it are skipped with a warning, to be replaced
    by training. All but the last `kept` are removed, and TensorFlow's file `checkpoint` lists them.
    """
    steps = sorted(int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{name}-*.index"))
    prefixes = [folder / f"{name}-{step}" for step in steps]
    while prefixes:
        try:
            # TensorFlow compares the checksums that it wrote.
            Checkpoint(prefixes[-1]).read()
            break
        except UserError as error:
            logging.warning("%s; it is skipped", error)
            prefixes = prefixes[:-1] if remove else []
    if remove and prefixes:
        for old in prefixes[:-kept]:
            for path in checkpoint_files(old).values():
                path.unlink()
        from tensorflow.compat.v1 import train

        paths = [str(prefix) for prefix in prefixes[-kept:]]
        # Without times TensorFlow forgets all but the last.
        times = [os.stat(f"{path}.index").st_mtime for path in paths]
        train.update_checkpoint_state(str(folder), paths[-1], paths, all_model_checkpoint_timestamps=times)
    return str(prefixes[-1]) if prefixes else None


def save_checkpoint(manager: "tf.train.CheckpointManager", number: int) -> None:
    """Save a checkpoint, whole or not at all; a `UserError` if the disk is full."""
    folder = pathlib.Path(manager.directory)
    try:
        with full_disk_as_error(folder / f"checkpoint {number}"):
            # It would count how often the run was interrupted: a resumed run's checkpoint has the same bytes.
            manager.checkpoint.save_counter.assign(0)
            manager.save(checkpoint_number=number)
    finally:
        for left in folder.glob(f"*-{number}_temp"):
            shutil.rmtree(left)
