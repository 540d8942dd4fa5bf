"""The original's command line, flag for flag: `python -m bert_flow_tf.run_siamese --task_name=STS-B …`."""

import dataclasses
import logging as python_logging
import os
import pathlib
import re
import sys
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bert_flow_tf.errors import ArgumentError, UserError, exit_status, quiet_libraries, suggest

quiet_libraries()
if any(re.fullmatch(r"--?use_xla(=(true|t|1|yes|y))?", argument.lower()) for argument in sys.argv):
    # Clustering on CPUs must be enabled before TensorFlow loads; on GPUs the optimiser's setting is enough.
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit".strip()

from absl import app, flags, logging  # noqa: E402

from bert_flow_tf.commands.evaluate import read_tasks, scores_of  # noqa: E402
from bert_flow_tf.data.transfer_sets import SENTEVAL_NAMES  # noqa: E402
from bert_flow_tf.encoder.pooling import pooling_name  # noqa: E402
from bert_flow_tf.files.atomic import output_file  # noqa: E402
from bert_flow_tf.files.json_files import write_json  # noqa: E402
from bert_flow_tf.results.tables import scores_table  # noqa: E402
from bert_flow_tf.runs.folder import EVALUATION_FILE  # noqa: E402
from bert_flow_tf.runs.settings import Settings  # noqa: E402
from bert_flow_tf.training.run import check, train_and_score  # noqa: E402

if TYPE_CHECKING:
    from bert_flow_tf.commands.evaluate import AnyTask
    from bert_flow_tf.training.scoring import Scorer


_DEFINE = {int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_bool, str: flags.DEFINE_string}
_SOURCES = os.path.dirname(os.path.abspath(__file__))


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    for field in dataclasses.fields(Settings):
        # For `str | None`, the flag has the type str.
        kind = (*typing.get_args(field.type), field.type)[0]
        _DEFINE[kind](field.name, field.default, field.metadata["help"], flag_values=flag_values)


def run(settings: Settings) -> None:
    """Train, evaluate and predict, as the settings say.

    If TF_CONFIG names several workers, they train together, and only the chief evaluates and predicts.
    """
    check(settings)
    if not settings.do_senteval:
        train_and_score(settings)
        return
    tasks, path = _senteval_tasks(settings), None
    if not settings.scores_checkpoint_alone:
        path = settings.output_dir / EVALUATION_FILE
        output_file(path, overwrite=settings.overwrite, flag=str(path))
    original = settings.original_protocol
    train_and_score(settings, lambda scorer: _write_senteval(path, scorer, tasks, original))


def _senteval_tasks(settings: Settings) -> "list[AnyTask]":
    names = [name.strip() for name in settings.senteval_tasks.split(",")]
    if unknown := [name for name in names if name not in SENTEVAL_NAMES]:
        known = f"{', '.join(SENTEVAL_NAMES)}{suggest(unknown[0], SENTEVAL_NAMES)}"
        raise ArgumentError(f"senteval_tasks: found {unknown[0] or 'nothing'}, expected some of {known}")
    return read_tasks([SENTEVAL_NAMES[name] for name in names], senteval_dir=settings.senteval_dir)


def _write_senteval(
    path: pathlib.Path | None, scorer: "Scorer", tasks: "Sequence[AnyTask]", original_protocol: bool
) -> None:
    """Print the tasks' scores; write them in the format of `bert-flow evaluate`."""
    from bert_flow_tf.api import BertFlow

    assert scorer.record is not None, "only a scorer of dev during training has no record"
    model = BertFlow(scorer.model, scorer.model.encoder.source, record=scorer.record)
    results = scores_of("run_siamese", model, tasks, original_protocol)
    print(scores_table(results).to_text())
    if path:
        write_json(path, results)


def _is_shown(record: python_logging.LogRecord) -> bool:
    """True for this package's records and for libraries' warnings."""
    return record.levelno >= python_logging.WARNING or record.pathname.startswith(_SOURCES)


def settings_of(flag_values: flags.FlagValues) -> Settings:
    values = {field.name: getattr(flag_values, field.name) for field in dataclasses.fields(Settings)}
    return Settings(**{**values, "sentence_embedding_type": pooling_name(values["sentence_embedding_type"])})


def parse(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    try:
        return flag_values(argv)
    except (flags.Error, UnicodeDecodeError) as error:
        raise UserError(" ".join(str(error).split())) from error


def main(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> int:
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_shown)

    def run_with_flags() -> None:
        if len(argv) > 1:
            raise UserError(f"found the argument {argv[1]}, expected flags only (--name=value)")
        try:
            run(settings_of(flag_values))
        except ArgumentError as error:
            raise ArgumentError(re.sub("^pooling", "sentence_embedding_type", str(error))) from error

    return exit_status(run_with_flags)


if __name__ == "__main__":
    define_flags()
    sys.exit(exit_status(lambda: app.run(main, flags_parser=parse)))
