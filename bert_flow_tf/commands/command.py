"""A command's options: made from settings, and which of them belong together.

A settings class declares its options once, with defaults and limits. An option says beside which
others it has an effect, a command which options it needs and which exclude each other; what would
be ignored is refused here, for every command.
"""

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.settings import Settings, value_type

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


# The parser and the word in the help of each type of field; its settings class checks the limits.
_TYPES: dict[type, tuple[click.ParamType, str]] = {
    int: (click.INT, "N"),
    float: (click.FLOAT, "X"),
    str: (click.STRING, "NAME"),
}


class Option(click.Option):
    """An option that may belong to others.

    Args:
      needs: names of options; this one has an effect only beside one of them. The command need
        not have them all.
    """

    def __init__(self, *arguments: Any, needs: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.needs = needs


option = functools.partial(click.option, cls=Option)


class Command(click.Command):
    """A command that refuses options without an effect, and names its options.

    Args:
      one_of: groups of options; the user must give exactly one of each.
      excludes: by option, the others that have no effect beside it.
    """

    def __init__(
        self,
        *arguments: Any,
        one_of: Sequence[Sequence[str]] = (),
        excludes: Mapping[str, Sequence[str]] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.one_of = one_of
        self.excludes = excludes or {}

    def invoke(self, ctx: click.Context) -> Any:
        given = given_options()
        for group in self.one_of:
            check_one_of(*group)
        names = {parameter.name: shell_name(parameter) for parameter in self.params}
        for parameter in self.params:
            name = shell_name(parameter)
            needed = [one for one in getattr(parameter, "needs", ()) if one in names.values()]
            if name in given and needed and not given.intersection(needed):
                raise ArgumentError(f"{name}: missing --{' or --'.join(needed)}, which it needs")
        for name in given.intersection(self.excludes):
            refuse(self.excludes[name], f"--{name}")
        try:
            return super().invoke(ctx)
        except ArgumentError as error:
            # In Python, an argument may have another name than the option.
            name, colon, reason = str(error).partition(":")
            raise ArgumentError(f"{names.get(name, name)}{colon}{reason}") from error


command = functools.partial(click.command, cls=Command)


def shell_name(parameter: click.Parameter) -> str:
    """Return an option's name in the shell, without hyphens."""
    return parameter.opts[0].lstrip("-")


def given_options() -> set[str]:
    """Return the names of the options that the user gave a value."""
    ctx = click.get_current_context()
    return {
        shell_name(parameter)
        for parameter in ctx.command.params
        if ctx.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT
        and ctx.params.get(str(parameter.name)) not in (None, "", ())
    }


def check_one_of(*names: str) -> None:
    """Raise `click.UsageError` unless the user gave exactly one of the options."""
    given = given_options()
    found = [f"--{name}" for name in names if name in given]
    if len(found) != 1:
        expected = f"{'one of ' if len(names) > 1 else ''}--{', --'.join(names)}"
        raise click.UsageError(f"found {' and '.join(found) or 'none'}, expected {expected}")


def refuse(names: Sequence[str], beside: str) -> None:
    """Raise `ArgumentError` for the first given option of those without an effect.

    Args:
      beside: what makes them ineffective, such as `--method sn`.
    """
    given = given_options()
    for name in names:
        if name in given:
            raise ArgumentError(f"{name}: found it beside {beside}, where it has no effect")


def setting_options(kind: type[Settings], *only: str, name: str = "settings") -> Decorator:
    """Return a decorator that adds options and passes settings.

    There is an option per field; the function gets an object of `kind` by the keyword `name`.

    Args:
      *only: names of fields; the others keep their defaults.
    """
    named = dataclasses.fields(kind)  # type: ignore[arg-type]
    fields = [field for field in named if not only or field.name in only]

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def with_settings(**values: Any) -> Any:
            made = kind(**{field.name: values.pop(field.name) for field in fields})
            return function(**{name: made}, **values)

        for field in reversed(fields):
            _field_option(field)(with_settings)
        return with_settings

    return decorate


def _field_option(field: dataclasses.Field) -> Decorator:
    """Return the option of a field; its settings class checks the limits."""
    about = field.metadata
    limits = about["limits"]
    is_tuple = typing.get_origin(field.type) is tuple
    base = str if is_tuple else value_type(field)
    name = f"--{about['option'] or field.name}"
    attributes: dict[str, Any] = {
        "help": about["help"],
        "needs": about["needs"],
        "default": field.default,
    }
    if base is bool and field.default is None:
        name = f"{name}/--no_{name.removeprefix('--')}"
    elif base is bool:
        attributes["is_flag"] = True
    elif "choices" in limits:
        attributes["type"] = click.Choice(limits["choices"])
    else:
        attributes["type"], metavar = _TYPES[base]
        attributes["metavar"] = about["metavar"] or metavar
    if limits.get("required"):
        attributes["required"] = True
        del attributes["default"]
    if is_tuple:
        attributes["multiple"] = True
    return option(name, field.name, **attributes)
