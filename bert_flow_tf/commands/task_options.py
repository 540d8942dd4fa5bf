"""Options of tasks, and of a model that is scored on them."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.command import Decorator, Function, option
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.model_options import ModelOptions
from bert_flow_tf.common.settings import flag

if TYPE_CHECKING:
    from bert_flow_tf.tasks.tasks import Task

HELP_OF_SENTEVAL = "SentEval's folder data, with STS/…, MR/…"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskModelOptions(ModelOptions):
    """A command's model whose length is the original's, 64."""

    max_seq_length: int = flag(64, "Word pieces per sentence.", needs=("bert_hub",), ge=3)


def _task(ctx: click.Context, option: click.Option, text: str) -> "Task":
    from bert_flow_tf.tasks.tasks import get_task

    return get_task(text, "task")


def task_list(known: Collection[str]) -> Function:
    """Return a callback as `name_list`'s, for any spelling of tasks."""

    def convert(ctx: click.Context, option: click.Option, text: str) -> list[str]:
        from bert_flow_tf.tasks.tasks import known_task

        names = name_list()(ctx, option, text)
        return list(dict.fromkeys(known_task(name, known, "tasks") for name in names))

    return convert


def task_option(help_of_task: str) -> Decorator:
    """Return a decorator that adds `--task`; case and hyphens do not matter."""
    return option(
        "--task",
        default="STS-B",
        callback=_task,
        metavar="NAME",
        needs=("glue_dir",),
        help=help_of_task,
    )
