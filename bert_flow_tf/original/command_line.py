"""The original's command: its flags, and what they do."""

import logging
import os
import typing
from collections.abc import Sequence
from typing import Any

from absl import flags

from bert_flow_tf.common.code_files import VARIABLE, import_code
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.settings import flag_fields
from bert_flow_tf.encoder.pooling import pooling_name
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.original.start import train_and_score
from bert_flow_tf.tasks import senteval, transfer
from bert_flow_tf.tasks.scored_tasks import ReadTasks, read_tasks
from bert_flow_tf.tasks.tasks import known_task
from bert_flow_tf.training.run_folder import FinishedRun

logger = logging.getLogger(__name__)

_DEFINE = {
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    str: flags.DEFINE_string,
}


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    for field in flag_fields(RunSettings):
        # For `str | None`, the flag has the type str.
        kind = (*typing.get_args(field.type), field.type)[0]
        _DEFINE[kind](field.name, field.default, field.metadata["help"], flag_values=flag_values)
    flags.DEFINE_string(
        "code",
        os.environ.get(VARIABLE),
        "Python file that registers parts of one's own, see docs/extend.md.",
        flag_values=flag_values,
    )


def run(settings: RunSettings) -> None:
    """Train, evaluate and predict, as the settings say.

    If TF_CONFIG names several workers, they train together, and only the chief evaluates and
    predicts.
    """
    read = _senteval_tasks(settings)
    try:
        train_and_score(settings, read.tasks if read else ())
    except FinishedRun as finished:
        logger.info("Nothing to do: %s", finished)
    if read is not None:
        read.check_complete()


def _senteval_tasks(settings: RunSettings) -> ReadTasks | None:
    """Return the tasks of `--do_senteval`, None without it."""
    scoring = settings.scoring
    if not scoring.do_senteval:
        return None
    names = [
        known_task(name.strip(), senteval.TASKS | transfer.TASKS, "senteval_tasks")
        for name in scoring.senteval_tasks.split(",")
    ]
    return read_tasks(names, senteval_dir=scoring.senteval_dir)


def given_flags(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the values of the flags that stand in arguments."""
    values = flags.FlagValues()
    define_flags(values)
    _, *others = parse(["run_siamese", *arguments], values)
    if others:
        raise UserError(f"found the argument {others[0]}, expected flags only (--name=value)")
    found = {
        field.name: values[field.name].value
        for field in flag_fields(RunSettings)
        if values[field.name].present
    }
    if pooling := found.get("sentence_embedding_type"):
        found["sentence_embedding_type"] = pooling_name(pooling)
    return found


def settings_of(flag_values: flags.FlagValues) -> RunSettings:
    """Import own parts and return the settings; prepare XLA before TensorFlow loads."""
    values = {field.name: getattr(flag_values, field.name) for field in flag_fields(RunSettings)}
    if values["use_xla"]:
        # Clustering on CPUs must be enabled here; on GPUs the optimiser's setting is enough.
        os.environ["TF_XLA_FLAGS"] = (
            f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit".strip()
        )
    if flag_values.code:
        import_code(flag_values.code)
    return RunSettings.of(
        **values | {"sentence_embedding_type": pooling_name(values["sentence_embedding_type"])}
    )


def parse(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    try:
        return flag_values(argv)
    except (flags.Error, UnicodeDecodeError) as error:
        raise UserError(" ".join(str(error).split())) from error
