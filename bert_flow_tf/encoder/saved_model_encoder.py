"""A TF-Hub text encoder that is no BERT, run as its SavedModel."""

import dataclasses
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.encoder.bert import Inputs, Outputs, Variables
from bert_flow_tf.encoder.weights import SourceRecord
from glow.lazy import quiet_import


@dataclasses.dataclass(frozen=True)
class SavedModelFiles:
    """A SavedModel with TF-Hub's text API, and its preprocess model.

    It has what `weights.Pretrained` has, but for weights and configuration.

    Attributes:
      vocab: word pieces in the order of their ids.
      files_digest, fingerprint: SHA-256 of the SavedModel's files, and of these and the vocabulary.
      num_layers, hidden_size: length of `encoder_outputs`, and width of `sequence_output`.
    """

    kind: ClassVar[str] = "tf-hub program"
    # A SavedModel does not show its number of positions.
    max_positions: ClassVar[int] = 512

    encoder_dir: pathlib.Path
    preprocess_dir: pathlib.Path
    vocab: list[str]
    record: SourceRecord
    files_digest: str
    fingerprint: str
    num_layers: int
    hidden_size: int

    def network(self, *, trainable: bool) -> "SavedModelEncoder":
        """Return the loaded encoder."""
        return SavedModelEncoder(self, trainable=trainable)

    def write(self, folder: pathlib.Path) -> None:
        """Copy both SavedModels to `folder`, as `encoder` and `preprocess`."""
        for name, source in (("encoder", self.encoder_dir), ("preprocess", self.preprocess_dir)):
            shutil.copytree(source, folder / name, copy_function=shutil.copyfile)


class SavedModelEncoder:
    """A loaded SavedModel with the interface of `bert.Bert`.

    Dropout is random, and bfloat16 and ONNX's operations are not available.
    """

    def __init__(self, files: SavedModelFiles, *, trainable: bool = False) -> None:
        # tensorflow_hub takes a second to import, and a BERT does not need it.
        with quiet_import():
            import tensorflow_hub as hub

        self._folder = files.encoder_dir
        self.num_layers = files.num_layers
        self.hidden_size = files.hidden_size
        with reading(files.encoder_dir, "an encoder"):
            self.layer = hub.KerasLayer(hub.load(str(files.encoder_dir)), trainable=trainable)
        self.variables: Variables = {
            v.name.removesuffix(":0"): v for v in self.layer.variables if v.dtype.is_floating
        }
        signature = self.layer.resolved_object.__call__.function_spec.fullargspec
        self._takes_training = "training" in (*signature.args, *signature.kwonlyargs)

    def __call__(
        self,
        inputs: Inputs,
        seeds: tf.Tensor | None = None,
        *,
        training: bool = False,
        first_token_only: bool = False,
    ) -> Outputs:
        """Return the SavedModel's outputs as float32; `seeds` has no effect."""
        # Like the original, apply dropout in a frozen encoder too; hub.KerasLayer would turn it
        # off.
        has_dropout = training and self._takes_training
        outputs = (self.layer.resolved_object if has_dropout else self.layer)(
            inputs, training=has_dropout
        )
        return tf.nest.map_structure(
            lambda x: tf.cast(x, tf.float32) if x.dtype.is_floating else x, outputs
        )

    def in_bfloat16(self) -> Any:
        """Raise `ArgumentError`, because a SavedModel's types are fixed."""
        raise ArgumentError(f"dtype: found bfloat16 with {self._folder}, expected a BERT")

    def portable(self, weights: Mapping[str, tf.Tensor] | None = None) -> "SavedModelEncoder":
        """Return this encoder; its operations are fixed."""
        return self
