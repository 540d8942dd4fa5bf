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
from bert_flow_tf.files.atomic import full_disk_as_error, sync, write_atomically
from bert_flow_tf.files.reading import blocks_of, open_file, read_text

# TensorFlow takes seconds to load: not for a mistake in a prefix.
if TYPE_CHECKING:
    import tensorflow as tf

# What TensorFlow says of files that can be read and are not what it wrote; its reader has one exception for everything.
_DAMAGE = re.compile(r"checksum|sstable|Unable to read file|No such file|Read less bytes", re.IGNORECASE)


class Checkpoint:
    """The variables of a checkpoint, of TF1 or TF2, by name; `prefix` is the path of its files without their endings.

    Raises:
      UserError: the checkpoint cannot be read.
    """

    def __init__(self, prefix: str | os.PathLike) -> None:
        import tensorflow as tf

        self.prefix = pathlib.Path(prefix)
        for path in checkpoint_files(prefix).values() if self.prefix.parent.is_dir() else ():
            # TensorFlow would wait for a pipe.
            open_file(path, "a checkpoint's file").close()
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise UserError(f"{prefix}: checkpoint cannot be read: {str(error).splitlines()[0]}") from error
        self.shapes: dict[str, list[int]] = self._reader.get_variable_to_shape_map()
        self.dtypes: dict[str, tf.DType] = self._reader.get_variable_to_dtype_map()

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def __getitem__(self, name: str) -> np.ndarray:
        """Value of the variable; a `UserError` where the checkpoint's files do not belong together."""
        import tensorflow as tf

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
    latest = named_checkpoint(path) if len(found) > 1 else None
    if latest is not None:
        return pathlib.Path(latest)
    if len(found) != 1:
        raise UserError(f"{path}: found {', '.join(found) or 'no checkpoint'}, expected one")
    return path / found[0]


def named_checkpoint(folder: pathlib.Path) -> str | None:
    """Prefix of the checkpoint that TensorFlow's file `checkpoint` in the folder names; None where it names none.

    Raises:
      UserError: the file cannot be read.
    """
    if (folder / "checkpoint").exists():
        # TensorFlow would wait for a pipe, and takes other bytes for text.
        read_text(folder / "checkpoint", "TensorFlow's list of checkpoints")
    import tensorflow as tf

    try:
        return tf.train.latest_checkpoint(str(folder))
    except ValueError as error:
        raise UserError(f"{folder / 'checkpoint'}: {error}, expected TensorFlow's list of checkpoints") from error


def checkpoint_files(prefix: str | os.PathLike) -> dict[str, pathlib.Path]:
    """dict of name -> path of the files of the checkpoint with this prefix, its data before its index."""
    prefix = pathlib.Path(prefix)
    name = re.compile(rf"{re.escape(prefix.name)}\.(data-\d+-of-\d+|index)")
    return {path.name: path for path in sorted(prefix.parent.iterdir()) if name.fullmatch(path.name)}


def whole_checkpoint(folder: pathlib.Path, name: str, kept: int, *, remove: bool) -> str | None:
    """Prefix of the last checkpoint `name-STEP` in the folder, if it is whole, else None.

    With `remove` it is the last one that is whole: those after it are removed, and all but the last `kept`. Afterwards
    TensorFlow's file `checkpoint` names it and those before it.

    Raises:
      UserError: a file cannot be read, which says nothing of its contents.
    """
    numbered = re.compile(rf"{re.escape(name)}-(\d+)\.index")
    steps = sorted(int(match[1]) for path in folder.iterdir() if (match := numbered.fullmatch(path.name)))
    prefixes = [folder / f"{name}-{step}" for step in steps]
    while prefixes and not _is_whole(prefixes[-1]):
        if not remove:
            return None
        _remove(prefixes.pop())
    if not prefixes:
        return None
    if remove:
        for old in prefixes[:-kept]:
            _remove(old)
    prefixes = prefixes[-kept:]
    lines = [f'model_checkpoint_path: "{prefixes[-1].name}"']
    state = folder / "checkpoint"
    if not state.is_file() or state.read_text(encoding="utf-8", errors="replace").splitlines()[:1] != lines:
        logging.warning("The last whole checkpoint is %s", prefixes[-1])
        lines += [f'all_model_checkpoint_paths: "{prefix.name}"' for prefix in prefixes]
        # Without times TensorFlow forgets all but the last.
        times = [prefix.with_name(f"{prefix.name}.index").stat().st_mtime for prefix in prefixes]
        lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
        write_atomically(state, "".join(f"{line}\n" for line in lines))
    return str(prefixes[-1])


def _is_whole(prefix: pathlib.Path) -> bool:
    """Whether all variables of a checkpoint, whose files can be read, have the checksums that TensorFlow wrote."""
    for path in checkpoint_files(prefix).values():
        # A disk that fails raises here.
        for _ in blocks_of(path, "a checkpoint's file"):
            pass
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(prefix))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, IndexError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if not _DAMAGE.search(reason):
            raise UserError(f"{prefix}: cannot be read ({reason}), expected a checkpoint") from error
        logging.warning("%s is damaged: %s", prefix, reason)
        return False
    return True


def _remove(prefix: pathlib.Path) -> None:
    logging.warning("%s is removed", prefix)
    for path in checkpoint_files(prefix).values():
        path.unlink()


def save_checkpoint(manager: "tf.train.CheckpointManager", number: int) -> None:
    """Saves a checkpoint, whole or not at all, that survives a loss of power.

    Raises:
      UserError: the disk is full.
    """
    folder = pathlib.Path(manager.directory)
    try:
        with full_disk_as_error(folder / f"checkpoint {number}"):
            # It would count how often the run was interrupted: a resumed run's checkpoint has the same bytes.
            manager.checkpoint.save_counter.assign(0)
            prefix = manager.save(checkpoint_number=number)
            for path in (*checkpoint_files(prefix).values(), folder / "checkpoint", folder):
                sync(path)
    finally:
        for left in folder.glob(f"*-{number}_temp"):
            shutil.rmtree(left)
