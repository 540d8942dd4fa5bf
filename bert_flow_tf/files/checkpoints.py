"""TensorFlow's checkpoints: found by their folder or prefix, opened, and read by name."""

import os
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bert_flow_tf.errors import UserError


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
