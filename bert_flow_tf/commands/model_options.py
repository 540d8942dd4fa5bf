"""Options that name a model, checked before TensorFlow loads."""

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any, ClassVar

import click

from bert_flow_tf.commands.command import option, refuse
from bert_flow_tf.common.errors import (
    ArgumentError,
    UserError,
    check_installed,
    suggest_file,
)
from bert_flow_tf.common.reading import is_export, reading
from bert_flow_tf.common.settings import DTYPES, Settings, flag
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.runtime.model import ExportedModel

DTYPE = option("--dtype", type=click.Choice(DTYPES), help="Type of matrices.  [default: float32]")
# An encoder has these options, without a model.
ENCODER = ("bert_hub", "preprocess_hub", "pooling", "max_seq_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(Settings):
    """The options that name a model or an encoder."""

    opens_exports: ClassVar[bool] = False

    model: str | None = flag(None, "Run, checkpoint, saved model or Hub model.", metavar="RUN")
    bert_hub: str | None = flag(
        None, "Encoder: demo, base, a handle or a folder.", metavar="HANDLE|DIR"
    )
    preprocess_hub: str | None = flag(
        None, "Preprocess model of --bert_hub.", metavar="HANDLE|DIR", needs=("bert_hub",)
    )
    pooling: str | None = flag(
        None,
        "avg (or mean), cls, avg-last-2, …  [default: the encoder's, or avg]",
        needs=("bert_hub",),
    )
    max_seq_length: int | None = flag(
        None,
        "Word pieces per sentence.  [default: the encoder's, at most 256]",
        needs=("bert_hub",),
        ge=3,
    )
    truncate_dim: int | None = flag(
        None, "Leading channels to keep.", needs=("model", "bert_hub"), ge=1
    )

    def __post_init__(self) -> None:
        """Raise `UserError` for a missing model; download a Hub model."""
        super().__post_init__()
        for name in ("bert_hub", "preprocess_hub"):
            check_handle(getattr(self, name), name)
        if self.pooling is not None:
            check_pooling(self.pooling)
        if self.model and not (self.opens_exports and is_export(self.model)):
            check_model(self.model)

    @property
    def run_dir(self) -> pathlib.Path | None:
        """The folder of `--model`, if it is on this machine; else None."""
        path = pathlib.Path(self.model or os.devnull)
        return path if path.is_dir() else path.parent if os.path.isfile(f"{path}.index") else None

    def load(self, dtype: str = DTYPES[0]) -> "BertFlow":
        """Load the model in TensorFlow."""
        from bert_flow_tf.api import BertFlow

        if self.model:
            return BertFlow.from_pretrained(self.model, dtype=dtype, truncate_dim=self.truncate_dim)
        assert self.bert_hub is not None  # The command needs one of the two.
        return BertFlow.from_hub(
            self.bert_hub,
            preprocess_hub=self.preprocess_hub,
            pooling=self.pooling,
            max_seq_length=self.max_seq_length,
            dtype=dtype,
            truncate_dim=self.truncate_dim,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodingOptions(ModelOptions):
    """A command's model that only encodes; it may be an export."""

    opens_exports = True

    model: str | None = flag(
        None, "Saved model, Hub model, run, checkpoint or ONNX export.", metavar="DIR"
    )

    @property
    def is_export(self) -> bool:
        return self.model is not None and is_export(self.model)

    def open(self, dtype: str | None = None) -> "BertFlow | ExportedModel":
        """Open an export, without TensorFlow, or load another model."""
        if not self.is_export:
            return self.load(dtype or DTYPES[0])
        from bert_flow_tf.runtime.model import open_export

        return open_export(str(self.model), truncate_dim=self.truncate_dim)

    def check_dtype(self) -> None:
        """Raise `ArgumentError` for `--dtype` beside an export, which has its own."""
        if self.is_export:
            refuse(("dtype",), f"--model={self.model}, an export")


def check_model(model: str) -> None:
    """Download a Hub model; raise `UserError` if `--model` does not exist."""
    if os.path.exists(f"{model}.index"):
        return
    # A command without `--model` reads no records.
    from bert_flow_tf.model.saved_model import model_folder

    try:
        if not model_folder(model).is_dir():
            is_file = os.path.isfile(model)
            found = (
                "found a file, expected a folder or a checkpoint's prefix"
                if is_file
                else "no such folder or checkpoint"
            )
            raise UserError(f"{model}: {found}")
    except UserError as error:
        near = "" if os.path.exists(model) else suggest_file(model)
        raise UserError(f"--model={error}{near}") from error


SENTENCE_TRANSFORMER = option(
    "--sentence_transformer", metavar="NAME", help="Name or folder of its model."
)


def load_sentence_transformer(name: str) -> Any:
    """Load a model of the library; raise `UserError` without one."""
    check_sentence_transformers()
    from sentence_transformers import SentenceTransformer

    with reading(f"--sentence_transformer={name}", "a model of sentence-transformers"):
        return SentenceTransformer(name)


def check_sentence_transformers() -> None:
    """Raise `ArgumentError` unless the library is installed."""
    check_installed(
        "sentence_transformers", "sentence-transformers", "sentence_transformer", ArgumentError
    )
