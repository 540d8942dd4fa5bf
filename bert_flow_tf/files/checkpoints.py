"""TensorFlow's checkpoints: found by their folder or prefix, opened, and read by name."""

import os
import pathlib
import shutil
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import refusing_full_disk, sync, write_atomically


class Checkpoint:
    """The variables of a checkpoint, of TF1 or TF2, by name; `prefix` is the path of its files without their endings.

    Raises:
      UserError: the checkpoint cannot be read.
    """

    def __init__(self, prefix: str | os.PathLike) -> None:
        self.prefix = pathlib.Path(prefix)
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
        except (tf.errors.OpError, ValueError) as error:
            raise UserError(f"{prefix}: checkpoint cannot be read: {str(error).splitlines()[0]}") from error
        self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        """Value of the variable; a `UserError` where the checkpoint's files do not belong together."""
        try:
            return self._reader.get_tensor(name)
        except (tf.errors.OpError, IndexError) as error:
            raise UserError(f"{self.prefix}: its data file does not fit its index, expected a whole one") from error

    def read(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """dict of name -> value of these variables."""
        return {name: self[name] for name in names}


def checkpoint_prefix(checkpoint: str | os.PathLike) -> pathlib.Path:
    """The checkpoint's prefix, given the prefix itself or a folder that holds a checkpoint.

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
    found = sorted(file.name.removesuffix(".index") for file in path.glob("*.index"))
    latest = tf.train.latest_checkpoint(str(path)) if len(found) > 1 else None
    if latest is not None:
        return pathlib.Path(latest)
    if len(found) != 1:
        raise UserError(f"{path}: found {', '.join(found) or 'no checkpoint'}, expected one")
    return path / found[0]


def checkpoint_files(prefix: str | os.PathLike) -> dict[str, pathlib.Path]:
    """dict of name -> path of the files of the checkpoint with this prefix, its data before its index."""
    prefix = pathlib.Path(prefix)
    return {path.name: path for path in sorted(prefix.parent.glob(f"{prefix.name}.*")) if path.suffix != ".meta"}


def whole_checkpoint(folder: pathlib.Path, name: str) -> str | None:
    """Prefix of the last checkpoint `name-STEP` in the folder that can be read whole, None where there is none.

    Those after it are damaged and removed. TensorFlow's file `checkpoint` names it and those before it afterwards.
    """
    steps = {int(path.stem.rpartition("-")[2]): path.with_suffix("") for path in folder.glob(f"{name}-*.index")}
    prefixes = [steps[step] for step in sorted(steps)]
    while prefixes:
        try:
            checkpoint = Checkpoint(prefixes[-1])
            for variable in checkpoint.shapes:
                checkpoint[variable]
        except UserError as error:
            logging.warning("%s; it is removed", error)
            for path in checkpoint_files(prefixes.pop()).values():
                path.unlink()
        else:
            break
    if not prefixes:
        return None
    lines = [f'model_checkpoint_path: "{prefixes[-1].name}"']
    state = folder / "checkpoint"
    if not state.is_file() or state.read_text(encoding="utf-8", errors="replace").splitlines()[:1] != lines:
        logging.warning("The last whole checkpoint is %s", prefixes[-1])
        lines += [f'all_model_checkpoint_paths: "{prefix.name}"' for prefix in prefixes]
        write_atomically(state, "".join(f"{line}\n" for line in lines))
    return str(prefixes[-1])


def save_checkpoint(manager: tf.train.CheckpointManager, number: int) -> None:
    """Saves a checkpoint, whole or not at all, that survives a loss of power.

    Raises:
      UserError: the disk is full.
    """
    folder = pathlib.Path(manager.directory)
    try:
        with refusing_full_disk(folder / f"checkpoint {number}"):
            prefix = manager.save(checkpoint_number=number)
            for path in (*checkpoint_files(prefix).values(), folder / "checkpoint", folder):
                sync(path)
    finally:
        for left in folder.glob(f"*-{number}_temp"):
            shutil.rmtree(left)


def check_space(manager: tf.train.CheckpointManager, kept: int) -> None:
    """Raises `UserError` unless there is space for all checkpoints that are there at once, one more than `kept`."""
    size = sum(path.stat().st_size for path in checkpoint_files(manager.latest_checkpoint).values())
    needed = size * (kept + 1 - len(manager.checkpoints))
    free = shutil.disk_usage(manager.directory).free
    if free < needed:
        raise UserError(f"{manager.directory}: found {free:,} bytes free, expected {needed:,} for checkpoints")
