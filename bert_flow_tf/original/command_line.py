"""The original's command: its flags, and what they do."""

import functools
import logging
import os
import pathlib
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from bert_flow_tf.common.atomic import output_file
from bert_flow_tf.common.code_files import VARIABLE, import_code
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.settings import flag_fields
from bert_flow_tf.encoder.pooling import pooling_name
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.original.start import train_and_score
from bert_flow_tf.report.reports import scores_table
from bert_flow_tf.tasks import senteval, transfer
from bert_flow_tf.tasks.scored_tasks import ReadTasks, ScoredTask, read_tasks
from bert_flow_tf.tasks.tasks import known_task
from bert_flow_tf.training.run_folder import EVALUATION_FILE, FinishedRun

if TYPE_CHECKING:
    from bert_flow_tf.original.scoring import PairScorer

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
    score = None
    if read is not None:
        score = functools.partial(_write_senteval, _evaluation_file(settings), read.tasks)
    try:
        train_and_score(settings, score)
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


def _evaluation_file(settings: RunSettings) -> pathlib.Path | None:
    """Return the file of `--do_senteval`, None for a checkpoint without a run.

    Raises:
      UserError: it exists. A command that trains finds it beside its own finished run.
    """
    if settings.scores_checkpoint_alone:
        return None
    path = settings.output_dir / EVALUATION_FILE
    if not settings.training.do_train:
        output_file(path, overwrite=settings.overwrite, flag=str(path))
    return path


def _write_senteval(
    path: pathlib.Path | None, tasks: Sequence[ScoredTask], scorer: "PairScorer"
) -> None:
    """Print the tasks' scores; write them in the format of `bert-flow evaluate`."""
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.encoder.text_encoder import TextEncoder
    from bert_flow_tf.model.scoring import scores_of

    record = scorer.record
    network = scorer.model.encoder
    model = BertFlow(
        TextEncoder(network.source, network, max_seq_length=record.max_seq_length),
        [] if scorer.model.flow is None else [scorer.model.flow],
        origin=record.encoder,
        learned=record.flow,
        checkpoint=record.checkpoint,
        low_dim=record.low_dim,
    )
    results = scores_of("run_siamese", model, tasks)
    print(scores_table(results, explain_paper=True).to_text())
    if path:
        write_json(path, results)


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
