"""The options that several commands share, and what they give to the command's function.

Everything here is checked before TensorFlow loads, which takes seconds.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_name
from bert_flow_tf.errors import UserError, is_plain_number, nearest, nearest_file
from bert_flow_tf.files.sentence_files import FORMATS, read_sentences
from bert_flow_tf.model.saved_model import check_model_folder, model_folder
from bert_flow_tf.runs.settings import flow_config
from bert_flow_tf.serving import DTYPES

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.data.tasks import Task

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

_MOST_SEEDS = 1000
_LARGEST_SEED = 999_999_999
# Of which Python's numbers take 4,300 at most.
_DIGITS = re.compile("[0-9]{1,1000}")


class _PlainNumber(click.ParamType):
    """What click's numbers share here: ASCII digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not is_plain_number(value):
            self.fail(f"{value!r} is not a valid {self.name}.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        # What click says in the help of a number without limits.
        return super()._describe_range().replace("x<=None", "")  # type: ignore[misc]


class WholeNumber(_PlainNumber, click.IntRange):
    """Type of an option: `WholeNumber(1)` is 1 or more."""


class Number(_PlainNumber, click.FloatRange):
    """Type of an option: `Number(0, min_open=True)` is any positive number."""


HELP_OF_MODEL = "Finished run, one of its checkpoints, or a saved model, also one of the Hugging Face Hub by its name."
SENTEVAL_OPTION = click.option(
    "--senteval_dir", metavar="DIR", help="SentEval's folder that holds STS/STS12-en-test and so on."
)
ENCODER_OPTIONS = [
    click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model, if --bert_hub does not name it."),
    click.option(
        "--sentence_embedding_type",
        metavar="NAME",
        help="Pooling, with --bert_hub: avg, cls, avg-last-2, …  [default: its own, or avg]",
    ),
    click.option(
        "--max_seq_length",
        type=WholeNumber(3),
        metavar="N",
        help="Cut sentences at N word pieces, with --bert_hub.  [default: its own (demo: 256), or 64]",
    ),
]
FORMAT_OPTIONS = [
    click.option(
        "--input_format", type=click.Choice(sorted(set(FORMATS.values()))), help="If the file's ending does not say it."
    ),
    click.option(
        "--column",
        metavar="NAME|N",
        help="Column of the sentences; in TSV and CSV without a line of names, its number.  [default: sentence]",
    ),
]


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Decorator that adds the options, as `click.option` makes them, in the order of the list."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The model that a command line names: a run, a checkpoint or a saved model, or an encoder, or another source.

    Without sentences to embed, the length is 3, which every encoder allows.
    """

    model: str | None = None
    bert_hub: str | None = None
    preprocess_hub: str | None = None
    sentence_embedding_type: str | None = None
    max_seq_length: int | None = None
    embeds_sentences: bool = True

    @property
    def run_dir(self) -> pathlib.Path | None:
        """Folder of the run; None for `bert_hub`, and for a model of the Hugging Face Hub."""
        if self.model is None:
            return None
        path = pathlib.Path(self.model)
        if path.is_dir():
            return path
        return path.parent if pathlib.Path(f"{path}.index").is_file() else None

    def load(self, dtype: str = DTYPES[0]) -> "BertFlow":
        """The model; raises `UserError` if a run is not finished, or an encoder cannot be found or does not fit."""
        check_handle(self.bert_hub, "bert_hub")
        check_handle(self.preprocess_hub, "preprocess_hub")
        if self.sentence_embedding_type is not None:
            check_name(self.sentence_embedding_type)
        if self.model:
            check_model_folder(self.model)
        # TensorFlow takes seconds to load: not for --help, nor for a mistake in the flags.
        from bert_flow_tf.api import BertFlow

        if self.model:
            return BertFlow.from_pretrained(self.model, dtype=dtype)
        assert self.bert_hub is not None  # `model_options` lets only one of the two be missing
        return BertFlow.from_hub(
            self.bert_hub,
            preprocess_hub=self.preprocess_hub,
            pooling=self.sentence_embedding_type,
            max_seq_length=self.max_seq_length if self.embeds_sentences else 3,
            dtype=dtype,
        )


def model_options(*, pooling: bool = True, or_instead: str | None = None) -> Decorator:
    """Decorator that gives a command the options of a model, and its function one argument `model`, a `ModelOptions`.

    Before the function is called: one model is named, options of `--bert_hub` come with it, and `--model` is a folder
    or a checkpoint. `ModelOptions.load` checks the rest.

    Args:
      pooling: whether the command embeds sentences, and so takes `--sentence_embedding_type` and `--max_seq_length`.
      or_instead: name of an option of the command that can replace the model.
    """
    options = [
        click.option("--model", metavar="RUN", help=HELP_OF_MODEL),
        click.option(
            "--bert_hub",
            metavar="HANDLE|DIR",
            help="Or an encoder without a flow: demo, base, large, a TF-Hub handle, a folder.",
        ),
        *(ENCODER_OPTIONS if pooling else ENCODER_OPTIONS[:1]),
    ]

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(**values: Any) -> Any:
            names = [field.name for field in dataclasses.fields(ModelOptions) if field.name in values]
            chosen = ModelOptions(**{name: values.pop(name) for name in names}, embeds_sentences=pooling)
            _check_model(chosen, {or_instead: values[or_instead]} if or_instead else {})
            return function(model=chosen, **values)

        return with_options(options)(command)

    return decorate


def _check_model(chosen: ModelOptions, instead: Mapping[str, str | None]) -> None:
    sources = {"--model": chosen.model, "--bert_hub": chosen.bert_hub}
    sources |= {f"--{name}": value for name, value in instead.items()}
    given = [flag for flag, value in sources.items() if value]
    if len(given) != 1:
        raise UserError(
            f"{click.get_current_context().command_path}: found {' and '.join(given) or 'no model'}, expected one of "
            f"{', '.join(sources)}"
        )
    for name in ("preprocess_hub", "sentence_embedding_type", "max_seq_length"):
        if getattr(chosen, name) is not None and given != ["--bert_hub"]:
            raise UserError(f"--{name}: found {given[0]}, expected --bert_hub, the only one that it applies to")
    for argument in ("bert_hub", "preprocess_hub"):
        check_handle(getattr(chosen, argument), argument)
    model = chosen.model
    if model:
        check_model(model, "a finished run")


def check_model(model: str, expected: str) -> None:
    """Raises `UserError` unless `--model` is there; one of the Hugging Face Hub is downloaded."""
    try:
        path = model_folder(model)
    except UserError as error:
        raise UserError(f"--model={error}{nearest_file(model)}") from error
    if path == pathlib.Path(model):
        check_checkpoint("--model", model, expected)


@dataclasses.dataclass(frozen=True)
class SentenceInput:
    """The sentences that a command line names; `-` is standard input."""

    path: str
    file_format: str | None = None
    column: str | None = None

    def read(self) -> Iterator[str]:
        """Iterator over the sentences; the file's format is checked at once."""
        return read_sentences(self.path, file_format=self.file_format, columns=self.column and [self.column])


def input_options(function: Command) -> Command:
    """Decorator that gives a command the options of a file of sentences, and its function `source`: `SentenceInput`."""

    @functools.wraps(function)
    def command(*, input_file: str, input_format: str | None, column: str | None, **values: Any) -> Any:
        return function(source=SentenceInput(input_file, input_format, column), **values)

    return with_options([file_option(required=True), *FORMAT_OPTIONS])(command)


def file_option(*, required: bool) -> Decorator:
    """`--input`, a file of sentences; the function gets it as `input_file`."""
    help_of_input = "Sentences: .txt, .tsv, .csv, .jsonl, .parquet; - is stdin."
    return click.option("--input", "input_file", required=required, metavar="FILE", help=help_of_input)


def _callback(convert: Callable[[str, str], Any]) -> Callable[[click.Context, click.Option, str | None], Any]:
    """A callback for `click.option` of a function from a flag and its text to a value."""

    def callback(ctx: click.Context, option: click.Option, text: str | None) -> Any:
        return None if text is None else convert(option.opts[0], text)

    return callback


def check_checkpoint(flag: str, path: str, expected: str) -> None:
    """Raises `UserError`, beginning with the flag, unless there is a folder or a checkpoint with this prefix."""
    if not pathlib.Path(path).is_dir() and not pathlib.Path(f"{path}.index").is_file():
        raise UserError(
            f"{flag}={path}: neither a folder nor a checkpoint's prefix, expected {expected}{nearest_file(path)}"
        )


def name_list(known: Collection[str] = ()) -> Callable:
    """Callback: comma-separated names, each once; where they are `known`, another or a repeated one is refused."""
    expected = f"some of {', '.join(known)}" if known else "names, comma-separated"

    @_callback
    def convert(flag: str, text: str) -> list[str]:
        found = [name.strip() for name in text.split(",") if name.strip()]
        if not found:
            raise UserError(f"{flag}: found none, expected {expected}")
        for name in found if known else ():
            if name not in known:
                raise UserError(f"{flag}: found {name}, expected {expected}{nearest(name, known)}")
            if found.count(name) > 1:
                raise UserError(f"{flag}: found {name} twice, expected each once")
        return list(dict.fromkeys(found))

    return convert


@_callback
def seed_list(flag: str, text: str) -> list[int]:
    """Callback: seeds 1 to N for a number, the numbers themselves for a list (`7,` for one)."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(map(_DIGITS.fullmatch, parts)):
        raise UserError(f"{flag}: found {text!r}, expected a number of seeds, or a list of seeds from 0: 7,8,9")
    found = [int(part) for part in parts]
    if "," not in text:
        if not found[0]:
            raise UserError(f"{flag}: found 0, expected at least one (write '0,' for the one seed 0)")
        if found[0] > _MOST_SEEDS:
            raise UserError(f"{flag}: found {text}, expected at most {_MOST_SEEDS} (write '{text},' for that one seed)")
        return list(range(1, found[0] + 1))
    if len(set(found)) < len(found):
        raise UserError(f"{flag}: found {text!r}, expected different seeds")
    if max(found) > _LARGEST_SEED:
        raise UserError(f"{flag}: found {max(found)}, expected seeds up to {_LARGEST_SEED}")
    return found


@_callback
def flow_config_name(flag: str, text: str) -> str:
    """Callback: name of a shipped flow configuration, or a JSON file that holds one."""
    flow_config(text)
    return text


@_callback
def task_name(flag: str, text: str) -> "Task":
    """Callback: a `tasks.Task` by any of its names: `STS-B`, `stsb`, `QNLI-Regression`, `qnli`, in any case."""
    from bert_flow_tf.data.sts_sets import task_key
    from bert_flow_tf.data.tasks import TASKS

    found = next((task for name, task in TASKS.items() if task_key(name) == task_key(text)), None)
    if found is None:
        raise UserError(f"{flag}: unknown task {text!r}, expected one of {', '.join(TASKS)}{nearest(text, TASKS)}")
    return found


def task_option(words: str) -> Decorator:
    """Decorator that adds `--task`, STS-B by default; `words` are its help."""
    return click.option("--task", default="STS-B", callback=task_name, metavar="NAME", help=words)


def require_gold(task: "Task", splits: Sequence[str]) -> None:
    """Raises `UserError` unless these splits of the task have gold scores; it names the tasks that have them."""
    from bert_flow_tf.data.tasks import TASKS

    def has_gold(task: "Task", split: str) -> bool:
        layout = task.gold_test if split == "test" else getattr(task, split)
        return task.is_regression and layout is not None and layout.label_column is not None

    for split in splits:
        if not has_gold(task, split):
            scored = [name for name, other in TASKS.items() if all(has_gold(other, one) for one in splits)]
            raise UserError(
                f"--task: {task.name} has no gold scores for its {split} split, expected one of {', '.join(scored)}"
            )
