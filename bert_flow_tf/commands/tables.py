"""The option `--format`, and the tables that it prints."""

import json
import shutil
import sys
from collections.abc import Sequence

import click

from bert_flow_tf.commands.command import option
from bert_flow_tf.commands.outputs import say
from bert_flow_tf.common.table import FORMATS, Table

TABLE_FORMAT = option(
    "--format",
    "table_format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    help="Format on stdout.",
)


def print_table(table: Table, table_format: str, missing: str = "-") -> None:
    """Print a table; remarks go to stderr, except in text and JSON."""
    if table_format == "text":
        click.echo(table.to_text(missing, terminal_width()))
        return
    click.echo(table.to_format(table_format))
    if table_format != "json":
        _print_remarks(table)


def print_tables(tables: Sequence[Table], table_format: str) -> None:
    """Print tables, with empty lines between them; JSON is a list."""
    if table_format == "text":
        click.echo("\n\n".join(table.to_text(width=terminal_width()) for table in tables))
    elif table_format == "json":
        click.echo(json.dumps([table.to_json() for table in tables], ensure_ascii=False, indent=1))
    else:
        click.echo("\n\n".join(table.to_format(table_format) for table in tables))
        for table in tables:
            _print_remarks(table)


def _print_remarks(table: Table) -> None:
    for line in (table.title, *table.notes):
        if line:
            say(line, err=True)


def terminal_width() -> int | None:
    """Return the terminal's width; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
