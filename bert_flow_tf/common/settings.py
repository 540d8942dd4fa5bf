"""The settings of each action: every flag's type, default, limits and help."""

import dataclasses
import functools
import inspect
import math
import os
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from bert_flow_tf.common.errors import ArgumentError, suggest
from glow.number_types import plain_number

if TYPE_CHECKING:
    from glow.config import GlowConfig


def flag(
    default: Any,
    help: str,
    *,
    identifies: bool = True,
    option: str | None = None,
    metavar: str | None = None,
    needs: tuple[str, ...] = (),
    **limits: Any,
) -> Any:
    """Return the dataclass field of a flag.

    Args:
      identifies: True if runs with different values are different runs.
      option: the name in the shell, if it is another one.
      metavar: the value in the help, by default by its type.
      needs: options of a command; the flag has an effect only beside one of them.
      **limits: `choices`, `required`, or arguments of `msgspec.Meta`, such as `ge`.
    """
    about = {
        "help": help,
        "identifies": identifies,
        "option": option,
        "metavar": metavar,
        "needs": needs,
        "limits": limits,
    }
    return dataclasses.field(default=default, metadata=about)


# The first type of the encoder's matrices is the default.
DTYPES = ("float32", "bfloat16")
Chosen = TypeVar("Chosen")
Function = TypeVar("Function", bound=Callable[..., Any])
# The trained weights do not depend on these flags.
flag_not_identifying = functools.partial(flag, identifies=False)


class Settings:
    """Base of the settings classes, which check their values when made."""

    def __post_init__(self) -> None:
        """Raise `ArgumentError` for the first invalid value."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = plain_number(getattr(self, field.name))
            # These classes are frozen, and JSON has no numbers of NumPy.
            object.__setattr__(self, field.name, value)
            limits = dict(field.metadata.get("limits", {}))
            expected = None
            choices = limits.pop("choices", ())
            is_default = value is None and type(None) in typing.get_args(field.type)
            if limits.pop("required", False) and not value:
                expected = f"expected a value ({field.metadata['help']})"
            elif isinstance(value, float) and not math.isfinite(value):
                expected = "expected a finite number"
            elif choices and not is_default and value not in choices:
                known = tuple(map(str, choices))
                expected = f"expected {' or '.join(known)}{suggest(str(value), known)}"
            elif field.metadata and not is_default:
                kind = value_type(field)
                try:
                    msgspec.convert(value, Annotated[kind, msgspec.Meta(**limits)])
                except msgspec.ValidationError as error:
                    expected = str(error).lower()
            if expected:
                raise ArgumentError(f"{field.name}: found {value or repr(value)}, {expected}")


def chosen(kind: type[Chosen], values: Mapping[str, Any]) -> Chosen:
    """Make settings from values, such as a function's arguments."""
    return kind(
        **{
            field.name: values[field.name]
            for field in dataclasses.fields(kind)  # type: ignore[arg-type]
            if field.name in values
        }
    )


def value_type(field: dataclasses.Field) -> Any:
    """Return the type that a field's limits belong to: `str` for `str | None`."""
    if typing.get_origin(field.type) is tuple:
        return field.type
    return (*typing.get_args(field.type), field.type)[0]


def flag_fields(kind: Any) -> Iterator[dataclasses.Field]:
    """Yield the fields of a settings class and of its parts."""
    for field in dataclasses.fields(kind):
        yield from [field] if field.metadata else flag_fields(field.type)


def flow_config(name_or_path: str | os.PathLike) -> "GlowConfig":
    """Return a `GlowConfig` by name or file; raise `ArgumentError` if invalid."""
    # Most commands have settings, but no flow.
    from glow.config import GlowConfig

    try:
        return GlowConfig.load(name_or_path)
    except (ValueError, OSError) as error:
        name = os.fspath(name_or_path)
        hint = "" if name.endswith(".json") else suggest(name, GlowConfig.names())
        raise ArgumentError(f"flow_model_config: {error}{hint}") from error


def suggesting_arguments(
    keywords: Callable[..., Any] | None = None,
) -> Callable[[Function], Function]:
    """Raise `ArgumentError` with a suggestion for an unknown argument.

    Args:
      keywords: a settings class or function, whose keywords are those that the function takes as
        `**`; `help` shows them and their defaults.
    """
    return functools.partial(_suggesting, keywords=keywords)


def _suggesting(function: Function, keywords: Callable[..., Any] | None) -> Function:
    signature = inspect.signature(function)
    known = dict(signature.parameters)
    if keywords is not None:
        (rest,) = [name for name, one in known.items() if one.kind is one.VAR_KEYWORD]
        del known[rest]
        for name, one in inspect.signature(keywords).parameters.items():
            if one.kind is one.KEYWORD_ONLY:
                known.setdefault(name, one)
        signature = signature.replace(parameters=list(known.values()))
    # In the shell, these settings of `fit` have the original's names.
    options = {
        "num_train_epochs": "epochs",
        "train_batch_size": "batch_size",
        "flow_learning_rate": "learning_rate",
    }

    @functools.wraps(function)
    def checked(*arguments: Any, **given: Any) -> Any:
        for name in given.keys() - known.keys():
            hint = (
                f"; did you mean {options[name]}?"
                if options.get(name) in known
                else suggest(name, known)
            )
            raise ArgumentError(
                f"{name}: found an argument that {function.__name__} does not have{hint}"
            )
        return function(*arguments, **given)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return typing.cast(Function, checked)
