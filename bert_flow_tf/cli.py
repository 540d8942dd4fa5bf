"""The command `bert-flow`."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from bert_flow_tf import __version__
from bert_flow_tf.errors import UserError, exit_status, nearest, quiet_libraries

# Each command is the function of its name, in the module of its name up to the hyphen; its line in `--help`.
_COMMANDS = {
    "fit": "Learn a flow on your sentences.",
    "encode": "Write the embeddings of sentences.",
    "encode-folder": "Write the embeddings of many files.",
    "similarity": "Print the cosine of two sentences, or of pairs.",
    "evaluate": "Score embeddings on similarity tasks.",
    "calibrate": "Compare the flow with other calibrations.",
    "analyze": "Look into the space of embeddings.",
    "project": "Show sentences in TensorBoard's projector.",
    "report": "Put results on one page, beside the paper's.",
    "verify": "Check that this code gives the original's numbers.",
    "reproduce": "Train and score rows of the paper's tables.",
    "prepare": "Write data sets in GLUE's layout.",
    "convert": "Convert encoders and checkpoints.",
    "pretrain": "Let a BERT learn your text.",
    "export": "Write a SavedModel for TensorFlow Serving.",
    "launch": "Train one run in several processes.",
}


class _Commands(click.Group):
    """Group that imports a command when it is used; a `UserError` ends it with one line `error: …` and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = importlib.import_module(f"bert_flow_tf.commands.{name.partition('-')[0]}")
        return getattr(module, name.replace("-", "_"))

    def main(self, *arguments: Any, **options: Any) -> Any:
        sys.exit(exit_status(lambda: super(_Commands, self).main(*arguments, **options)))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Which click would say otherwise.
            click.echo("interrupted", err=True)
            sys.exit(130)
        except click.exceptions.NoArgsIsHelpError:
            # Whose message is the help.
            raise
        except click.UsageError as error:
            raise UserError(usage_line(error)) from error

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise UserError(
                f"bert-flow: no command {args[0]}, expected one of {', '.join(sorted(_COMMANDS))}"
                f"{nearest(args[0], _COMMANDS)}"
            )
        return super().resolve_command(ctx, args)


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
