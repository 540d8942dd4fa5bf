"""The command `bert-flow`."""

import importlib
import sys

import click

from bert_flow_tf import __version__
from bert_flow_tf.arguments import quiet_libraries
from bert_flow_tf.errors import UserError

# Each command is the function of its own name in the module of its own name.
_COMMANDS = (
    "analyze",
    "calibrate",
    "convert",
    "encode",
    "evaluate",
    "export",
    "fit",
    "prepare",
    "project",
    "query",
    "report",
    "reproduce",
    "similarity",
)


class _Commands(click.Group):
    """Group that loads a command when asked for it, and ends with `error: …` and status 2 where a user can mend it."""

    def list_commands(self, ctx):
        return list(_COMMANDS)

    def get_command(self, ctx, name):
        if name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(f"bert_flow_tf.commands.{name}"), name)

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(2)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "bert-flow"
            click.echo(f"error: {command}: {error.format_message()}", err=True)
            sys.exit(2)


@click.group("bert-flow", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bert-flow")
def main():
    """BERT-flow: calibrated sentence embeddings from a frozen or fine-tuned BERT."""
    quiet_libraries()


if __name__ == "__main__":
    main()
