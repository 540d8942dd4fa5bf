"""The original's command line, flag for flag: `python -m bert_flow_tf.run_siamese --task_name=STS-B …`."""

import logging as python_logging
import os
import pathlib
import re
import sys
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_flow_tf.errors import ArgumentError, UserError, exit_status, is_plain_number, nearest, quiet_libraries

quiet_libraries()
if any(re.fullmatch(r"--?use_xla(=(true|t|1|yes|y))?", argument.lower()) for argument in sys.argv):
    # Clustering on CPUs is off unless asked for before TensorFlow loads; on GPUs the optimiser's setting is enough.
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit".strip()

import msgspec  # noqa: E402
from absl import app, flags, logging  # noqa: E402

from bert_flow_tf.commands.evaluate import evaluation_table, read_all, scores_of  # noqa: E402
from bert_flow_tf.data.transfer_sets import SENTEVAL_NAMES  # noqa: E402
from bert_flow_tf.files.atomic import output_file  # noqa: E402
from bert_flow_tf.files.json_files import write_json  # noqa: E402
from bert_flow_tf.runs.folder import EVALUATION_FILE  # noqa: E402
from bert_flow_tf.runs.record import made_by  # noqa: E402
from bert_flow_tf.runs.settings import FLAGS, Settings  # noqa: E402
from bert_flow_tf.training.run import check  # noqa: E402
from bert_flow_tf.training.run import run as train_and_score  # noqa: E402

if TYPE_CHECKING:
    from bert_flow_tf.commands.evaluate import AnyTask
    from bert_flow_tf.training.scoring import Scorer


class _Whole(flags.IntegerParser):
    def convert(self, argument: Any) -> int:
        return super().convert(_plain(argument))


class _Real(flags.FloatParser):
    def convert(self, argument: Any) -> float:
        return super().convert(_plain(argument))


def _plain(argument: Any) -> Any:
    if isinstance(argument, str) and not is_plain_number(argument):
        raise ValueError("expected ASCII digits")
    return argument


_NUMBERS = {int: _Whole, float: _Real}
_LONGEST_NAME = 200
_SOURCES = os.path.dirname(os.path.abspath(__file__))


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of `Settings`."""
    for name, field in FLAGS.items():
        # The first of `str | None` is what a flag's text is read as.
        kind = (*typing.get_args(field.type), field.type)[0]
        values = name, field.default, field.metadata["help"]
        if kind in _NUMBERS:
            flags.DEFINE(_NUMBERS[kind](), *values, flag_values, flags.ArgumentSerializer())
        else:
            (flags.DEFINE_bool if kind is bool else flags.DEFINE_string)(*values, flag_values=flag_values)


def run(settings: Settings) -> None:
    """Trains, evaluates and predicts, as the settings say; a mistake in flags or files is a `UserError`.

    Where TF_CONFIG names several workers, they train together, and the chief evaluates and predicts.
    """
    check(settings)
    if not settings.scoring.do_senteval:
        train_and_score(settings)
        return
    tasks, path = _senteval_tasks(settings), settings.output_dir / EVALUATION_FILE
    output_file(path, overwrite=settings.output.overwrite, flag=str(path))
    train_and_score(settings, lambda scorer: _write_senteval(settings.output_dir, scorer, tasks))


def _senteval_tasks(settings: Settings) -> "list[AnyTask]":
    """The tasks that `senteval_tasks` names, read.

    Raises:
      UserError: there is no such task, or its files are missing or not as expected.
    """
    names = [name.strip() for name in settings.scoring.senteval_tasks.split(",")]
    for name in names:
        if name not in SENTEVAL_NAMES:
            raise ArgumentError(
                f"senteval_tasks: found {name or 'nothing'}, expected some of {', '.join(SENTEVAL_NAMES)}"
                f"{nearest(name, SENTEVAL_NAMES)}"
            )
        if names.count(name) > 1:
            raise ArgumentError(f"senteval_tasks: found {name} twice, expected each once")
    return read_all([SENTEVAL_NAMES[name] for name in names], senteval_dir=settings.scoring.senteval_dir, split=None)


def _write_senteval(output_dir: pathlib.Path, scorer: "Scorer", tasks: "Sequence[AnyTask]") -> None:
    """Prints the scores of the tasks, and writes them into the run's directory as `bert-flow evaluate` does."""
    from bert_flow_tf.api import BertFlow

    assert scorer.record is not None, "a scorer without a record evaluates alone"
    model = BertFlow(scorer.model, scorer.model.encoder.source, record=scorer.record)
    results = msgspec.structs.replace(scores_of(model, tasks), made_by=made_by("run_siamese"))
    print(evaluation_table(results.tasks, results.without_flow).to_text())
    write_json(output_dir / EVALUATION_FILE, results)


def _is_ours(record: python_logging.LogRecord) -> bool:
    """Whether it is no mere remark of a library's."""
    return record.levelno >= python_logging.WARNING or record.pathname.startswith(_SOURCES)


def main(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> int:
    """Runs with the parsed flags; a `UserError` becomes one line on stderr and status 2."""
    logging.set_verbosity(logging.INFO)
    logging.get_absl_handler().addFilter(_is_ours)

    def run_with_flags() -> None:
        if len(argv) > 1:
            raise UserError(f"found the argument {argv[1]}, expected flags only (--name=value)")
        run(Settings.of(**{name: getattr(flag_values, name) for name in FLAGS}))

    return exit_status(run_with_flags)


def parse(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
    """What is no flag, after the flags have got their values.

    Raises:
      UserError: there is no such flag, or it has no such value.
    """
    # absl looks for names that are like one that it does not know, letter by letter.
    longest = max((len(one.partition("=")[0]) for one in argv[1:] if one.startswith("-")), default=0)
    if longest > _LONGEST_NAME:
        raise UserError(f"found a flag of {longest:,} letters, expected the name of one")
    try:
        return flag_values(argv)
    except (flags.Error, UnicodeDecodeError) as error:
        raise UserError(" ".join(str(error).split())) from error


def _parse(argv: list[str]) -> list[str]:
    try:
        return parse(argv)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def run_command(arguments: Sequence[str]) -> int:
    """Exit status of the command with these arguments; its flags and its logging are its own."""
    values = flags.FlagValues()
    define_flags(values)
    # Else absl warns that it logs before flags are parsed.
    flags.FLAGS.mark_as_parsed()
    verbosity = logging.get_verbosity()
    logging.use_absl_handler()
    try:
        return exit_status(lambda: main(parse(["run_siamese", *arguments], values), values))
    finally:
        python_logging.getLogger().removeHandler(logging.get_absl_handler())
        logging.set_verbosity(verbosity)


if __name__ == "__main__":
    define_flags()
    sys.exit(exit_status(lambda: app.run(main, flags_parser=_parse)))
