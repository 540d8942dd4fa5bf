"""Options of several commands, checked before TensorFlow loads, which takes seconds."""

import dataclasses
import functools
import itertools
import os
import pathlib
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.calibration.settings import METRICS
from bert_flow_tf.common.errors import (
    ArgumentError,
    UserError,
    check_installed,
    suggest,
    suggest_file,
)
from bert_flow_tf.common.settings import DTYPES, Settings, chosen, flag_fields
from bert_flow_tf.common.table import FORMATS
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling
from bert_flow_tf.model.saved_model import model_folder
from bert_flow_tf.runtime.description import is_export
from bert_flow_tf.tasks.sentence_files import (
    INPUT_FORMATS,
    read_sentences,
)

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.runtime.model import ExportedModel
    from bert_flow_tf.tasks.tasks import Task

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

_LARGEST = 2**32 - 1
_MOST_SEEDS = 1000


class IntRange(click.IntRange):
    """Whole numbers in a range."""

    name = "whole number"


class FloatRange(click.FloatRange):
    """Numbers in a range."""

    name = "number"


COUNT = IntRange(1, _LARGEST)
WHOLE = IntRange(0, _LARGEST)
LENGTH = IntRange(3, _LARGEST)


def length_option(default: object) -> Decorator:
    """Return `--max_seq_length` without a default; its help names one."""
    text = f"Word pieces per sentence.  [default: {default}]"
    return click.option("--max_seq_length", type=LENGTH, metavar="N", help=text)


HELP_OF_MODEL = "Run, checkpoint, saved model or Hub model."
_HELP_WITH_EXPORTS = "Saved model, Hub model, run, checkpoint or ONNX export."
SENTEVAL_OPTION = click.option(
    "--senteval_dir", metavar="DIR", help="SentEval's folder data, with STS/…, MR/…"
)
_FORMATS = click.Choice(sorted(set(INPUT_FORMATS.values())))
FORMAT_OPTIONS = [
    click.option("--input_format", type=_FORMATS, help="[default: by the ending]"),
    click.option("--column", metavar="NAME|N", help="Column.  [default: sentence]"),
    click.option("--no_header", is_flag=True, help="TSV or CSV has no row of column names."),
]
INPUT_FILES = [
    click.option(
        "--input",
        "inputs",
        required=True,
        multiple=True,
        metavar="FILE",
        help="File or glob; repeatable.",
    ),
    *FORMAT_OPTIONS,
]
_MODEL_OPTIONS: dict[str, Decorator] = {
    "model": click.option("--model", metavar="RUN", help=HELP_OF_MODEL),
    "bert_hub": click.option(
        "--bert_hub", metavar="HANDLE|DIR", help="Encoder: demo, base, a handle or a folder."
    ),
    "preprocess_hub": click.option(
        "--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub."
    ),
    "pooling": click.option(
        "--pooling",
        metavar="NAME",
        help="avg (or mean), cls, avg-last-2, …  [default: the encoder's, or avg]",
    ),
    "max_seq_length": length_option("the encoder's, at most 256"),
    "truncate_dim": click.option(
        "--truncate_dim",
        type=IntRange(min=1),
        metavar="N",
        help="Leading channels to keep.",
    ),
}
_ENCODER_OPTIONS = ("preprocess_hub", "pooling", "max_seq_length")


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Return a decorator that adds options, in the order of the list."""
    return lambda function: functools.reduce(
        lambda command, option: option(command), reversed(options), function
    )


def field_options(kind: type[Settings], *names: str) -> Decorator:
    """Return a decorator that adds an option per (named) field."""
    return with_options(
        [_field_option(field) for field in flag_fields(kind) if not names or field.name in names]
    )


def _field_option(field: dataclasses.Field) -> Decorator:
    limits = field.metadata["limits"]
    base = (*typing.get_args(field.type), field.type)[0]
    names = (f"--{field.metadata['option'] or field.name}", field.name)
    text = field.metadata["help"]
    if base is bool and field.default is None:
        both = f"{names[0]}/--no_{names[0].removeprefix('--')}"
        return click.option(both, field.name, default=None, help=text)
    if base is bool:
        return click.option(*names, is_flag=True, default=field.default, help=text)
    if "choices" in limits:
        return click.option(
            *names, type=click.Choice(limits["choices"]), default=field.default, help=text
        )
    low = limits.get("ge", limits.get("gt"))
    top = limits.get("lt")
    kind = base
    if base is int and low is not None:
        kind = IntRange(low, top, max_open=top is not None)
    elif base is float and low is not None:
        kind = FloatRange(low, top, min_open="gt" in limits, max_open=top is not None)
    metavar = {int: "N", float: "X"}.get(base, "NAME")
    return click.option(*names, type=kind, default=field.default, metavar=metavar, help=text)


def setting_options(kind: type[Settings], *only: str) -> Decorator:
    """Return a decorator that adds the fields' options and passes `settings`."""
    names = only or tuple(field.name for field in flag_fields(kind))

    def made(values: dict[str, Any]) -> dict[str, Any]:
        others = {name: value for name, value in values.items() if name not in names}
        try:
            return {"settings": chosen(kind, values), **others}
        except ArgumentError as error:
            name, colon, reason = str(error).partition(":")
            options = {
                field.name: field.metadata["option"] or field.name for field in flag_fields(kind)
            }
            raise ArgumentError(f"{options.get(name, name)}{colon}{reason}") from error

    return _converted(field_options(kind, *names), made)


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The options that name a model or an encoder."""

    model: str | None = None
    bert_hub: str | None = None
    preprocess_hub: str | None = None
    pooling: str | None = None
    max_seq_length: int | None = None
    truncate_dim: int | None = None

    @property
    def run_dir(self) -> pathlib.Path | None:
        """The folder of `--model`, if it is on this machine; else None."""
        path = pathlib.Path(self.model or os.devnull)
        return path if path.is_dir() else path.parent if os.path.isfile(f"{path}.index") else None

    def open(self, dtype: str | None = None) -> "BertFlow | ExportedModel":
        """Open an export, without TensorFlow, or load another model."""
        if not self.is_export:
            return self.load(dtype or DTYPES[0])
        from bert_flow_tf.runtime.model import open_export

        return open_export(str(self.model), truncate_dim=self.truncate_dim)

    @property
    def is_export(self) -> bool:
        return self.model is not None and is_export(self.model)

    def check_dtype(self, dtype: str | None) -> None:
        """Raise `ArgumentError` for the type of an export, which has its own."""
        if self.is_export and dtype is not None:
            raise ArgumentError(
                f"dtype: found {dtype} with --model={self.model}, an export, which has its own type"
            )

    def load(self, dtype: str = DTYPES[0]) -> "BertFlow":
        """Load the model in TensorFlow."""
        from bert_flow_tf.api import BertFlow

        if self.model:
            return BertFlow.from_pretrained(self.model, dtype=dtype, truncate_dim=self.truncate_dim)
        assert self.bert_hub is not None  # `model_options` requires one of the two
        return BertFlow.from_hub(
            self.bert_hub,
            preprocess_hub=self.preprocess_hub,
            pooling=self.pooling,
            max_seq_length=self.max_seq_length,
            dtype=dtype,
            truncate_dim=self.truncate_dim,
        )


def model_options(
    *sources: str,
    pooling: bool = True,
    length: int | None = None,
    required: bool = True,
    exports: bool = False,
) -> Decorator:
    """Return a decorator that adds options and passes a `ModelOptions` as `model`.

    A command that takes `--model` encodes, and has `--truncate_dim`, too.

    Args:
      *sources: names of options; the user must give exactly one. By default `model` and `bert_hub`.
      pooling: True to add `--pooling` and `--max_seq_length`.
      length: default of `--max_seq_length`, such as the original's 64; None for the model's own.
      required: False if the command may do without a model.
      exports: True for a command that only encodes, which an export's folder does, too.
    """
    sources = sources or ("model", "bert_hub")
    names = [
        name
        for name in _MODEL_OPTIONS
        if name in (*sources, *_ENCODER_OPTIONS[: None if pooling else 1])
        or (name == "truncate_dim" and "model" in sources)
    ]

    def checked(values: dict[str, Any]) -> dict[str, Any]:
        if required or any(values[name] for name in sources):
            check_one_of({name: values[name] for name in sources})
        given = {name: values.pop(name) for name in names}
        for name in _ENCODER_OPTIONS:
            if given.get(name) is not None and not given["bert_hub"]:
                raise UserError(f"--{name}: missing --bert_hub, which it needs")
        if given.get("truncate_dim") and not (given["model"] or given["bert_hub"]):
            raise UserError("--truncate_dim: missing --model or --bert_hub, which it needs")
        if length and given["bert_hub"]:
            given["max_seq_length"] = given["max_seq_length"] or length
        for name in ("bert_hub", "preprocess_hub"):
            check_handle(given[name], name)
        if given.get("pooling") is not None:
            check_pooling(given["pooling"])
        if given.get("model"):
            check_model(given["model"], exports=exports)
        return {"model": ModelOptions(**given), **values}

    table = _MODEL_OPTIONS | ({"max_seq_length": length_option(length)} if length else {})
    if exports:
        table["model"] = click.option("--model", metavar="DIR", help=_HELP_WITH_EXPORTS)
    return _converted(with_options([table[name] for name in names]), checked)


def _converted(
    options: Decorator, convert: Callable[[dict[str, Any]], dict[str, Any]]
) -> Decorator:
    """Return a decorator that adds options and converts their values."""
    return lambda function: options(
        functools.wraps(function)(lambda **values: function(**convert(values)))
    )


def check_one_of(options: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` unless exactly one option has a value."""
    given = [f"--{name}" for name, value in options.items() if value]
    if len(given) != 1:
        raise click.UsageError(
            f"found {' and '.join(given) or 'none'}, expected one of --{', --'.join(options)}"
        )


def check_model(model: str, *, exports: bool = False) -> None:
    """Download a Hub model; raise `UserError` if `--model` does not exist.

    Args:
      exports: True if an export's folder will do.
    """
    if exports and is_export(model):
        return
    try:
        if not (os.path.exists(f"{model}.index") or model_folder(model).is_dir()):
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


def sentence_options(*, required: bool = True, may_be_empty: bool = False) -> Decorator:
    """Return a decorator that adds `--input` and passes an iterator as `sentences`.

    Args:
      required: True if the command needs `--input`.
      may_be_empty: True if a file without sentences is no mistake.
    """
    text = "Text, TSV, CSV, JSONL or Parquet; -: stdin"
    options = [
        click.option("--input", "path", required=required, metavar="FILE", help=text),
        *FORMAT_OPTIONS,
    ]

    def opened(values: dict[str, Any]) -> dict[str, Any]:
        path = values.pop("path")
        file_format = values.pop("input_format")
        column = values.pop("column")
        no_header = values.pop("no_header")
        sentences = None
        if path:
            sentences = read_sentences(
                path,
                file_format=file_format,
                columns=[column] if column else None,
                no_header=no_header,
            )
            first = next(sentences, None)
            if first is not None:
                sentences = itertools.chain([first], sentences)
            elif not may_be_empty:
                raise UserError(f"--input={path}: found no sentences, expected at least one")
        elif file_format or column or no_header:
            raise click.UsageError("--input_format and --column: missing --input, which they need")
        return {"sentences": sentences, **values}

    return _converted(with_options(options), opened)


SENTENCE_TRANSFORMER = click.option(
    "--sentence_transformer", metavar="NAME", help="Name or folder of its model."
)


def load_sentence_transformer(name: str) -> Any:
    check_installed(
        "sentence_transformers", "sentence-transformers", "sentence_transformer", ArgumentError
    )
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(name)


PAIR_OPTIONS = [
    click.option("--pairs", metavar="FILE", help="TSV, CSV, JSONL or Parquet."),
    click.option("--pair_columns", metavar="A,B,SCORE", help="Names or numbers."),
]
TABLE_FORMAT = click.option(
    "--format",
    "table_format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    help="Format on stdout.",
)
METRIC = click.option(
    "--metric",
    type=click.Choice(METRICS),
    help="Decides on --pairs.  [default: by their scores]",
)


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
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > _LARGEST:
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
    return click.option(
        "--task", default="STS-B", callback=_task, metavar="NAME", help=help_of_task
    )
