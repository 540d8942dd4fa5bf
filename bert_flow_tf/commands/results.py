"""The option `--runs`: results of other commands, and what is left out."""

from collections.abc import Sequence

import click

from bert_flow_tf.commands.outputs import say
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.report.collected import FoundResults, LeftOut, find_results


def check_runs(first: Sequence[str], more: Sequence[str]) -> None:
    """Raise `click.UsageError` for paths without `--runs` before them."""
    if more and not first:
        raise click.UsageError(f"found the argument {more[0]}, expected --runs before it")


def found_results(runs: Sequence[str]) -> FoundResults:
    """Return the results below some paths; say what is left out."""
    found = find_results(runs)
    for one in found.left_out:
        say(str(one), err=True)
    return found


def check_whole(left_out: Sequence[LeftOut]) -> None:
    """Raise `UserError` after the work if files could not be read."""
    if damaged := [str(one.path) for one in left_out if one.is_damaged]:
        raise UserError(f"left out, because they are damaged: {', '.join(damaged)}")
