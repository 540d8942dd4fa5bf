"""What command lines share: a mistake is one `error:` line on stderr and exit status 2."""

import argparse
import os
import sys
import warnings

from bert_flow_tf.errors import UserError


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises `UserError` where argparse would print its usage and exit."""

    def error(self, message: str):
        raise UserError(message)


def quiet_libraries(log_level="3"):
    """Keeps remarks that libraries make when imported off stderr, where a user's error is to be seen.

    Args:
      log_level: least that TensorFlow's own code writes: "2" for errors, "3" for the end of the process alone.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", log_level)
    for category in (FutureWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")


def exit_status(run, *arguments) -> int:
    """What `run(*arguments)` returns, 0 for None; 2 after the line of its `UserError`; 130 if it is interrupted."""
    try:
        return run(*arguments) or 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
