"""The exceptions that mean "the user can correct this", and how a command line ends with one."""

import atexit
import contextlib
import difflib
import errno
import gc
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# What ends a line, moves a terminal's cursor, or is no text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors of a full disk


class UserError(Exception):
    """A mistake in a flag, a file or its contents: one line, in which control characters are escaped.

    Command lines print it after ``error: `` on stderr and exit with status 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_CONTROLS.sub(lambda control: ascii(control[0])[1:-1], message))


class ArgumentError(UserError):
    """A mistake in an argument, whose name the message begins with: `max_seq_length: found 2, expected 3 or more`."""


def pip_install(extra: str) -> str:
    """Return the end of a message about a missing library that an extra of the package installs."""
    return f"pip install 'bert-flow-tf[{extra}]', or '.[{extra}]' in a clone"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a known one that may be meant; "" without one."""
    by_letters = {one.lower(): one for one in known if one != name}
    found = difflib.get_close_matches(name.lower(), by_letters, n=1)
    return f"; did you mean {by_letters[found[0]]}?" if found else ""


def nearest_file(path: str | os.PathLike) -> str:
    """Return `nearest` for the files beside a path that does not exist."""
    with contextlib.suppress(OSError):
        return nearest(os.path.basename(path), os.listdir(os.path.dirname(path) or "."))
    return ""


def command_line_message(error: UserError) -> str:
    """Return an error's message with the flag in place of an `ArgumentError`'s argument."""
    line = f"--{error}" if isinstance(error, ArgumentError) else str(error)
    return re.sub("^--pooling", "--sentence_embedding_type", line)


def quiet_libraries() -> None:
    """Keep remarks of libraries off stderr, and the start and end of this process short."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Where cron or a daemon has closed one, the next file to be opened would get its number.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Keras 3, which TensorFlow would import, takes an eighth of the start of a process.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    warnings.simplefilter("ignore", FutureWarning)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    # Skip garbage collection during the imports and at the end; it would take half a second.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Hold back what is written to stderr, by native code too, while TensorFlow loads; write it if that raises."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.stderr is None:
        yield
        return
    with warnings.catch_warnings(), tempfile.TemporaryFile() as held, open(os.dup(2), "wb", buffering=0) as stderr:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            stderr.write(held.read())
            raise
        finally:
            os.dup2(stderr.fileno(), 2)


def exit_status(run: Callable[..., int | None], *arguments: Any) -> int:
    """Return what `run(*arguments)` returns, 0 for None; after one line 2 for a mistake, 130 for an interruption.

    SIGTERM interrupts as Ctrl-C does, so that what is half written is removed.
    """
    # Only the main thread may set it.
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
    except OSError as error:
        if error.errno is None:
            raise
        unnamed = "working directory" if error.errno == errno.ENOENT else "standard output"
        line = f"error: {error.filename or unnamed}: {error.strerror}"
        if error.filename is None:
            # Python would fail once more at its end on what a closed pipe or a full disk cannot take.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except KeyboardInterrupt:
        line, status = "interrupted", 130
    if sys.stderr is not None:
        print(line, file=sys.stderr)
    return status
