"""The command `bert-flow`."""

import importlib
import sys
from typing import Any

import click

from bert_flow_tf.common.code_files import VARIABLE, import_code
from bert_flow_tf.common.errors import (
    UserError,
    exit_status,
    log_progress,
    quiet_libraries,
    suggest,
)
from bert_flow_tf.common.version import __version__

_GROUPS = {
    "Use": {
        "fit": "Learn a flow on your sentences.",
        "encode": "Write the embeddings of sentences.",
        "encode-folder": "Write the embeddings of many files.",
        "similarity": "Print the cosine of two sentences, or of pairs.",
        "search": "Find sentences that are similar to a query.",
        "threshold": "Find the cosine that few random pairs exceed.",
        "duplicates": "Group the rows of a file that say nearly the same.",
    },
    "Evaluate": {
        "evaluate": "Score embeddings on similarity tasks.",
        "compare": "Compare calibrations on your sentences and pairs.",
        "analyses": "Analyse edit distance and word frequency, as in the paper.",
        "isotropy": "Measure how evenly embeddings fill their space.",
        "reproduce": "Train and score rows of the paper's tables.",
        "report": "Compare results with the paper, in tables.",
        "verify": "Check that this code gives the original's numbers.",
    },
    "Train": {
        "pretrain": "Train a BERT on your text.",
        "launch": "Train one run in several processes.",
    },
    "Convert and serve": {
        "convert": "Convert encoders, runs and TF1 checkpoints.",
        "export": "Write a SavedModel, ONNX or a sentence-transformers folder.",
        "check-served": "Compare a server's embeddings with an export's.",
    },
}
_EXAMPLE = "\b\nbert-flow fit --bert_hub demo --pooling cls --input sentences.txt --out my_model"
_COMMANDS = [name for group in _GROUPS.values() for name in group]


class _Commands(click.Group):
    """Import a command when it is used; report mistakes as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(max(map(len, _COMMANDS))), line)
                        for name, line in commands.items()
                    ]
                )

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in _COMMANDS:
            expected = f"expected one of {', '.join(_COMMANDS)}{suggest(name, _COMMANDS)}"
            raise click.UsageError(f"no command {name}, {expected}")
        name = name.replace("-", "_")
        return getattr(importlib.import_module(f"bert_flow_tf.commands.{name}"), name)

    def main(self, *arguments: Any, **options: Any) -> Any:
        sys.exit(exit_status(lambda: super(_Commands, self).main(*arguments, **options)))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Otherwise click prints "Aborted!".
            resumes = ctx.invoked_subcommand in ("encode-folder", "launch", "pretrain", "reproduce")
            click.echo(
                f"interrupted{'; run the same command to resume' if resumes else ''}", err=True
            )
            sys.exit(130)
        except click.UsageError as error:
            # If a sub-command is missing, click's message is the help text.
            if isinstance(error, click.exceptions.NoArgsIsHelpError):
                raise
            raise UserError(
                f"{(error.ctx or ctx).command_path}: {error.format_message()}"
            ) from error


def _without_synonym(name: str) -> str:
    """Return `pooling` for the original's name of this option."""
    return "pooling" if name == "sentence_embedding_type" else name


@click.group(
    "bert-flow",
    cls=_Commands,
    epilog=_EXAMPLE,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "token_normalize_func": _without_synonym,
    },
)
@click.version_option(__version__, prog_name="bert-flow")
@click.option(
    "--code",
    metavar="FILE.py",
    envvar=VARIABLE,
    help="Import your own parts, see docs/extend.md.",
)
def main(code: str | None) -> None:
    """BERT-flow: calibrated sentence embeddings from a frozen or fine-tuned BERT."""
    quiet_libraries()
    log_progress()
    if code:
        import_code(code)


if __name__ == "__main__":
    main()
