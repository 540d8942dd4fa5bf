"""The option `--task`: one of the tasks of `bert_flow_tf.tasks`, spelled as the paper or the original spells it."""

import click

from bert_flow_tf.errors import UserError


class TaskName(click.ParamType):
    """Gives the `tasks.Task` of a name: `STS-B`, `stsb`, `QNLI-Regression`, `qnli`, whatever the case."""

    name = "task"

    def convert(self, value, param, ctx):
        """The task of that name.

        Raises:
          UserError: there is none.
        """
        from bert_flow_tf.tasks import TASKS, Task

        if isinstance(value, Task):
            return value
        by_key = {_key(name): task for name, task in TASKS.items()}
        if _key(value) not in by_key:
            raise UserError(f"{param.opts[0]}: unknown task {value!r}, expected one of {', '.join(TASKS)}")
        return by_key[_key(value)]


def task_option(words):
    """Decorator that adds the option, STS-B by default, to a command; `words` are its help."""
    return click.option("--task", default="STS-B", type=TaskName(), metavar="NAME", show_default=True, help=words)


def require_gold(task, splits):
    """Raises `UserError` unless these splits of the task have gold scores; it names the tasks that have them."""
    from bert_flow_tf.tasks import TASKS

    for split in splits:
        if not _has_gold(task, split):
            scored = [name for name, other in TASKS.items() if all(_has_gold(other, one) for one in splits)]
            raise UserError(
                f"--task: {task.name} has no gold scores for its {split} split, expected one of {', '.join(scored)}"
            )


def _has_gold(task, split):
    layout = task.gold_test if split == "test" else getattr(task, split)
    return task.is_regression and layout is not None and layout.label_column is not None


def _key(name):
    return name.lower().replace("-", "").removesuffix("regression")
