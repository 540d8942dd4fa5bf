"""Errors that a user can correct, and a command's exit status."""

import atexit
import contextlib
import difflib
import errno
import gc
import importlib.util
import logging
import os
import re
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from glow.lazy import ignore_import_warnings
from glow.user_warnings import warn_user as warn_user

# These characters break a line, move a terminal's cursor or cannot be encoded as UTF-8.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# The standard streams that were closed when the process started.
CLOSED_STREAMS: set[str] = set()
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def one_line(text: str) -> str:
    """Escape control characters, which a file's name may hold."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


class UserError(Exception):
    """A user's mistake as one line, with control characters escaped.

    Command lines print it after ``error: `` on stderr and exit with status 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class ArgumentError(UserError):
    """An invalid argument; the message begins with its name.

    For example, `max_seq_length: found 2, expected 3 or more`.
    """


def check_open(name: str, words: str) -> None:
    """Raise `UserError` if a standard stream was closed at the start."""
    if name in CLOSED_STREAMS:
        raise UserError(f"{words}: found it closed, expected an open stream")


def pip_install(extra: str) -> str:
    """Return the command that installs an extra's libraries."""
    return f"pip install -e '.[{extra}]' in the clone"


def check_installed(module: str, extra: str, name: str, error: type[UserError] = UserError) -> None:
    """Raise an error, starting with `name`, unless an extra's module is installed."""
    if importlib.util.find_spec(module) is None:
        raise error(f"{name}: the extra {extra} is not installed: {pip_install(extra)}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?" for a similar name, else ""."""
    by_lower = {one.lower(): one for one in known if one != name}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


def suggest_file(path: str | os.PathLike) -> str:
    """Return `suggest` for the files in a missing path's folder."""
    with contextlib.suppress(OSError):
        return suggest(os.path.basename(path), os.listdir(os.path.dirname(path) or "."))
    return ""


def command_line_message(error: UserError) -> str:
    """Return an error's message; write an argument's name as a flag."""
    return f"--{error}" if isinstance(error, ArgumentError) else str(error)


def quiet_libraries() -> None:
    """Silence libraries; shorten the start and the end of the process."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Cron or a daemon may have closed a stream; without this, the next opened file would get
        # its descriptor.
        if getattr(sys, name) is None:
            CLOSED_STREAMS.add(name)
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # By default, a warning shows a line of this package's source.
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    ignore_import_warnings()
    # Collecting garbage during the imports and at the end takes a third of the start-up time.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    if "tensorflow" not in sys.modules:
        # Without this, TensorFlow would import Keras 3, which takes an eighth of the start-up time.
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        sys.meta_path.insert(0, _Loading)


@contextlib.contextmanager
def hidden_stderr() -> Iterator[None]:
    """Hide what native code writes to stderr; show it after an exception."""
    if sys.stderr is None:
        yield
        return
    with (
        tempfile.TemporaryFile() as hidden,
        open(os.dup(2), "wb", buffering=0) as stderr,
    ):
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        except BaseException:
            hidden.seek(0)
            stderr.write(hidden.read())
            raise
        finally:
            os.dup2(stderr.fileno(), 2)


class _Loading:
    """Import hook that prints a line before TensorFlow loads, which takes seconds."""

    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        if name == "tensorflow":
            sys.meta_path.remove(cls)
            print("loading TensorFlow", file=sys.stderr, flush=True)


def show_progress(*, of_original: bool) -> None:
    """Log this package's progress; `of_original` adds the experiment's."""
    for name in ("bert_flow_tf", "glow"):
        logging.getLogger(name).setLevel(logging.INFO)
    # The original's flags show its records; a run reports its steps from `training`.
    logging.getLogger("bert_flow_tf.original").setLevel(
        logging.INFO if of_original else logging.WARNING
    )


def log_progress() -> None:
    """Log warnings and progress on stderr, without the original's."""
    logging.basicConfig(format="%(message)s")
    show_progress(of_original=False)


def exit_status(run: Callable[..., int | None], *arguments: Any) -> int:
    """Call `run(*arguments)` and return the command's exit status.

    SIGTERM acts as Ctrl-C, so that unfinished files are removed.
    """
    # Only the main thread may set a signal's handler.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = 2
    try:
        try:
            return run(*arguments) or 0
        finally:
            print(end="", flush=True)
    except UserError as error:
        line = f"error: {command_line_message(error)}"
    except UnicodeEncodeError as error:
        line = f"error: {error.object[:200]!a}: cannot be encoded as {error.encoding}"
    except OSError as error:
        if error.errno is None:
            raise
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        # Of the errors without a file name, only those raised by printing are standard output's.
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        is_stdout = package in ("__main__", "absl", "bert_flow_tf", "click", "shutil")
        default_name = "working directory" if error.errno == errno.ENOENT else type(error).__name__
        line = (
            f"error: {error.filename or ('standard output' if is_stdout else default_name)}: "
            f"{error.strerror}"
        )
        if error.filename is None and is_stdout:
            # A closed pipe or a full disk would fail again when Python flushes its output at the
            # end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except KeyboardInterrupt:
        line = "interrupted"
        status = 130
    print(line, file=sys.stderr)
    return status
