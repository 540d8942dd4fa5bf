"""The command `bert-flow`."""

import importlib
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from bert_flow_tf import __version__
from bert_flow_tf.errors import UserError, command_line_message, plain_interrupts, quiet_libraries, refusing_long_names

# Each command is the function of its own name in the module of its own name.
_COMMANDS = (
    *("analyze", "calibrate", "convert", "encode", "evaluate", "export", "fit", "prepare", "project", "query"),
    *("report", "reproduce", "similarity"),
)


class _Commands(click.Group):
    """Group that imports a command when it is used; a `UserError` ends it with one line `error: …` and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(f"bert_flow_tf.commands.{name}"), name)

    def invoke(self, ctx: click.Context) -> Any:
        # Takes time to import, and `bert-flow --help` does without.
        from bert_flow_tf.files.atomic import refusing_full_disk

        try:
            # To the file or device that standard output is, for the error.
            with plain_interrupts(), refusing_long_names(), refusing_full_disk(pathlib.Path("/dev/stdout").resolve()):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(130)
        except UserError as error:
            line = command_line_message(error)
        except click.exceptions.NoArgsIsHelpError:
            # Whose message is the help.
            raise
        except click.UsageError as error:
            line = usage_line(error)
        click.echo(f"error: {line}", err=True)
        _drop_unwritten()
        sys.exit(2)


def _drop_unwritten() -> None:
    """Drops what standard output cannot take: else Python fails on it once more at its end, with status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def usage_line(error: click.UsageError) -> str:
    """The line of an error of click's."""
    return str(UserError(f"{error.ctx.command_path if error.ctx else 'bert-flow'}: {error.format_message()}"))


@click.group("bert-flow", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="bert-flow")
def main() -> None:
    """BERT-flow: calibrated sentence embeddings from a frozen or fine-tuned BERT."""
    quiet_libraries()


def run_command(arguments: Sequence[str]) -> int:
    """Exit status of `bert-flow` with these arguments."""
    try:
        main.main([*arguments], prog_name="bert-flow")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    main()
