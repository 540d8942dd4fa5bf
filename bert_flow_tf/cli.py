"""The command `bert-flow`."""

import importlib
import sys
from typing import Any

import click

from bert_flow_tf import __version__
from bert_flow_tf.errors import UserError, exit_status, nearest, quiet_libraries

# Each command is the function of its name, in the module of its name or this one; its line in `--help`.
_MODULES = {"encode-folder": "encode", "similarity": "encode", "project": "encode", "report": "verify"}
_GROUPS = {
    "Use": {
        "fit": "Learn a flow on your sentences.",
        "encode": "Write the embeddings of sentences.",
        "encode-folder": "Write the embeddings of many files.",
        "similarity": "Print the cosine of two sentences, or of pairs.",
        "project": "Show sentences in TensorBoard's projector.",
    },
    "Evaluate": {
        "evaluate": "Score embeddings on similarity tasks.",
        "calibrate": "Compare the flow with other calibrations.",
        "analyze": "Measure the space of embeddings.",
        "reproduce": "Train and score rows of the paper's tables.",
        "report": "Put results on one page, beside the paper's.",
        "verify": "Check that this code gives the original's numbers.",
    },
    "Train": {
        "prepare": "Write data sets in GLUE's layout.",
        "pretrain": "Train a BERT on your text.",
        "launch": "Train one run in several processes.",
    },
    "Convert and serve": {
        "convert": "Convert encoders and checkpoints.",
        "export": "Write a SavedModel, ONNX or a sentence-transformers folder.",
    },
}
_COMMANDS = [name for group in _GROUPS.values() for name in group]


class _Commands(click.Group):
    """Group that imports a command when it is used; a mistake ends it with one line `error: …` and status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(max(map(len, _COMMANDS))), line) for name, line in commands.items()])

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in _COMMANDS:
            raise click.UsageError(
                f"no command {name}, expected one of {', '.join(_COMMANDS)}{nearest(name, _COMMANDS)}"
            )
        module = importlib.import_module(f"bert_flow_tf.commands.{_MODULES.get(name, name)}")
        return getattr(module, name.replace("-", "_"))

    def main(self, *arguments: Any, **options: Any) -> Any:
        sys.exit(exit_status(lambda: super(_Commands, self).main(*arguments, **options)))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # click would print "Aborted!".
            click.echo("interrupted", err=True)
            sys.exit(130)
        except click.UsageError as error:
            # The message of a group without its command is its help.
            if isinstance(error, click.exceptions.NoArgsIsHelpError):
                raise
            raise UserError(f"{(error.ctx or ctx).command_path}: {error.format_message()}") from error


@click.group("bert-flow", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="bert-flow")
def main() -> None:
    """BERT-flow: calibrated sentence embeddings from a frozen or fine-tuned BERT."""
    quiet_libraries()


if __name__ == "__main__":
    main()
