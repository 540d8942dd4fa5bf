"""Options of several commands, checked before TensorFlow loads, which takes seconds."""

import dataclasses
import os
import pathlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

import click

from bert_flow_tf.commands.command import Decorator, Function, option, refuse
from bert_flow_tf.common.errors import (
    ArgumentError,
    UserError,
    check_installed,
    suggest,
    suggest_file,
)
from bert_flow_tf.common.reading import is_export
from bert_flow_tf.common.settings import DTYPES, Settings, flag
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.runtime.model import ExportedModel
    from bert_flow_tf.tasks.tasks import Task

_MOST_SEEDS = 1000
_LARGEST_SEED = 2**32 - 1
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskModelOptions(ModelOptions):
    """A command's model whose length is the original's, 64."""

    max_seq_length: int = flag(64, "Word pieces per sentence.", needs=("bert_hub",), ge=3)


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
    check_sentence_transformers()
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(name)


def check_sentence_transformers() -> None:
    """Raise `ArgumentError` unless the library is installed."""
    check_installed(
        "sentence_transformers", "sentence-transformers", "sentence_transformer", ArgumentError
    )


def metric_option() -> Decorator:
    """Return a decorator that adds `--metric`."""
    # Most commands do not need the methods of calibration.
    from bert_flow_tf.calibration.settings import METRICS

    return option(
        "--metric",
        type=click.Choice(METRICS),
        needs=("pairs", "glue_dir"),
        help="Decides on --pairs.  [default: by their scores]",
    )


DTYPE = option("--dtype", type=click.Choice(DTYPES), help="Type of matrices.  [default: float32]")
HELP_OF_SENTEVAL = "SentEval's folder data, with STS/…, MR/…"


def name_list(known: Collection[str] = ()) -> Function:
    """Return a callback that splits names at commas and drops duplicates."""

    def convert(ctx: click.Context, option: click.Option, text: str | None) -> list[str] | None:
        names = list(dict.fromkeys(filter(None, map(str.strip, (text or "").split(",")))))
        if text is not None and not names:
            raise click.BadParameter("found none, expected names separated by commas")
        for name in names if known else ():
            if name not in known:
                raise click.BadParameter(
                    f"found {name}, expected some of {', '.join(known)}{suggest(name, known)}"
                )
        return names or None

    return convert


def seed_list(ctx: click.Context, option: click.Option, text: str) -> list[int]:
    """Parse seeds: `3` means 1 to 3, and `7,8,9` a list."""
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = []
    if "," not in text:
        seeds = list(range(1, seeds[0] + 1)) if seeds and seeds[0] <= _MOST_SEEDS else []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > _LARGEST_SEED:
        expected = (
            f"expected a number of seeds up to {_MOST_SEEDS}, or different seeds: '7,8,9', "
            "or '7,' for one"
        )
        raise click.BadParameter(f"found {text[:40]!r}, {expected}")
    return seeds


def _task(ctx: click.Context, option: click.Option, text: str) -> "Task":
    from bert_flow_tf.tasks.tasks import get_task

    return get_task(text, "task")


def task_list(known: Collection[str]) -> Function:
    """Return a callback as `name_list`'s, for any spelling of tasks."""

    def convert(ctx: click.Context, option: click.Option, text: str) -> list[str]:
        from bert_flow_tf.tasks.tasks import known_task

        names = name_list()(ctx, option, text)
        return list(dict.fromkeys(known_task(name, known, "tasks") for name in names))

    return convert


def task_option(help_of_task: str) -> Decorator:
    """Return a decorator that adds `--task`; case and hyphens do not matter."""
    return option(
        "--task",
        default="STS-B",
        callback=_task,
        metavar="NAME",
        needs=("glue_dir",),
        help=help_of_task,
    )
