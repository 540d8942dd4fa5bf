"""The original's command line, flag for flag.

python -m bert_flow_tf.run_siamese --task_name=STS-B …
"""

import re
import sys

from bert_flow_tf.common.errors import (
    ArgumentError,
    UserError,
    exit_status,
    quiet_libraries,
    show_progress,
)

quiet_libraries()

from absl import app, flags  # noqa: E402

from bert_flow_tf.original import command_line  # noqa: E402
from bert_flow_tf.original.command_line import define_flags, parse, run, settings_of  # noqa: E402


def main(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> int:
    show_progress(of_original=True)

    def run_with_flags() -> None:
        if len(argv) > 1:
            raise UserError(f"found the argument {argv[1]}, expected flags only (--name=value)")
        try:
            run(settings_of(flag_values))
        except ArgumentError as error:
            raise ArgumentError(
                re.sub("^pooling", "sentence_embedding_type", str(error))
            ) from error

    return exit_status(run_with_flags)


if __name__ == "__main__":
    define_flags()
    # Without this, --help would not show the flags of another module.
    flags.adopt_module_key_flags(command_line)
    sys.exit(exit_status(lambda: app.run(main, flags_parser=parse)))
