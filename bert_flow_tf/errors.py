"""The exceptions that mean "the user can correct this", and how a command line ends with one."""

import argparse
import atexit
import contextlib
import difflib
import errno
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

# What ends a line, moves a terminal's cursor, or is no text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST = 4000
# Numbers of the errors that mean that a disk takes no more.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Number of an error of a name -> what is wrong with it.
_UNUSABLE = {
    errno.ENAMETOOLONG: "found a name that is too long, expected a shorter one",
    errno.EACCES: "found a place that you have no permission for, expected one that you may use",
}


class UserError(Exception):
    """A mistake in a flag, a file or its contents.

    The message is one line that names the file, line, column or flag, what was found and what was expected. Command
    lines print it after ``error: `` on stderr, without a traceback, and exit with status 2.

    What names and contents bring with them, line ends and other control characters, stands there as Python writes it.

    Attributes:
      arguments: names of arguments that the message has in back-quotes, behind what names and contents bring with them.
      status: of a command that ends with it.
    """

    status = 2

    def __init__(self, message: str, arguments: Iterable[str] = ()) -> None:
        line = _CONTROLS.sub(lambda control: ascii(control[0])[1:-1], message)
        # The end says what was expected.
        super().__init__(line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 4 :]}")
        self.arguments = tuple(arguments)


class ArgumentError(UserError):
    """A mistake in an argument, whose name the message begins with: `max_seq_length: found 2, expected 3 or more`.

    Flags are named like the arguments that they are passed to, except for `_FLAGS`.
    """


class LostWorkerError(UserError):
    """Another worker of the same training has ended or stalled: the same command, run again, may go on."""

    # EX_TEMPFAIL of sysexits.h.
    status = 75


# Argument -> the original's name for its flag.
_FLAGS = {"pooling": "sentence_embedding_type"}


def pip_install(extra: str) -> str:
    """The end of a message about a library that is not installed, and that an extra of the package brings."""
    return f"pip install 'bert-flow-tf[{extra}]', or '.[{extra}]' in a clone"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is unknown: the known one that it may be meant for; "" without one."""
    found = _closest(name, known)
    return "" if found is None else f"; did you mean {found}?"


def nearest_file(path: str | os.PathLike) -> str:
    """As `nearest`, of what is beside a path that does not exist."""
    path = pathlib.Path(path)
    # The names alone: all paths of a folder begin alike.
    with contextlib.suppress(OSError):
        if found := _closest(path.name, os.listdir(path.parent)):
            return f"; did you mean {path.with_name(found)}?"
    return ""


def _closest(name: str, known: Iterable[str]) -> str | None:
    by_letters = {one.lower(): one for one in known if one != name}
    found = difflib.get_close_matches(name.lower(), by_letters, n=1)
    return by_letters[found[0]] if found else None


def is_plain_number(text: str) -> bool:
    """Whether the text has neither digits of other scripts nor `_`, which Python reads in numbers: `５`, `0_5`."""
    return text.isascii() and "_" not in text


def command_line_message(error: UserError) -> str:
    """What a command line prints of an error: flags where Python code has arguments, the first or in back-quotes."""
    message = str(error)
    if isinstance(error, ArgumentError):
        message = re.sub(r"^\w+", lambda first: _flag(first[0]), message)
    for name in error.arguments:
        # The last of that name, which is no file's.
        message = re.sub(f"(.*)`{name}`", rf"\1{_flag(name)}", message)
    return message


def _flag(argument: str) -> str:
    return f"--{_FLAGS.get(argument, argument)}"


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises `UserError` where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


def quiet_libraries() -> None:
    """Keeps remarks that libraries make when imported off stderr, where a user's error is to be seen.

    It also keeps TensorFlow from importing Keras 3, which takes an eighth of the start of a process and which nothing
    here uses: a command line is a process of our own, where `tf.keras` may be tf_keras.
    """
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # Else Python looks through all that TensorFlow has made once more when the process ends, for a second.
    atexit.register(gc.freeze)
    _QuietTensorFlow.is_own_process = True
    quiet_imports()


def quiet_imports() -> None:
    """Ignores the warnings of libraries that are imported, and what TensorFlow's native code says when it is.

    Of what it says later it writes only what is fatal, unless TF_CPP_MIN_LOG_LEVEL says otherwise.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for category in (FutureWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    if "tensorflow" not in sys.modules and _QuietTensorFlow not in sys.meta_path:
        sys.meta_path.insert(0, _QuietTensorFlow)


class _QuietTensorFlow(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, and holds back what is written to stderr while it is imported."""

    is_own_process = False  # of a command line

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            setattr(spec.loader, "exec_module", _holding_back(spec.loader.exec_module))  # noqa: B010
        return spec


# Prints what it reads, unless that ends with the word that it is given.
_HOLD_BACK = 'held=$(cat); case $held in *"$0") ;; *) printf "%s\\n" "$held" >&2 ;; esac'
_ENDED_WELL = "ended well"


@contextlib.contextmanager
def native_messages_held_back() -> Iterator[None]:
    """Holds back what is written to stderr, native code's too: it is seen if the block raises or ends the process."""
    try:
        stderr = os.dup(2)
    except OSError:
        # There is none.
        yield
        return
    # A process of its own: native code ends this one where the CPU lacks an instruction.
    with subprocess.Popen(["sh", "-c", _HOLD_BACK, _ENDED_WELL], stdin=subprocess.PIPE, start_new_session=True) as sh:
        assert sh.stdin is not None
        os.dup2(sh.stdin.fileno(), 2)
        try:
            yield
            os.write(2, _ENDED_WELL.encode())
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _holding_back(function: Callable[[types.ModuleType], None]) -> Callable[[types.ModuleType], None]:
    """The function, which imports a module, without what it says if it ends well."""

    def quiet(module: types.ModuleType) -> None:
        collects = gc.isenabled()
        # Of half a million new objects none is garbage: to look for it, again and again, takes half a second.
        gc.disable()
        try:
            with native_messages_held_back():
                function(module)
        finally:
            if _QuietTensorFlow.is_own_process:
                gc.freeze()
            if collects:
                gc.enable()

    return quiet


@contextlib.contextmanager
def plain_interrupts() -> Iterator[None]:
    """Raises what was an interruption as `KeyboardInterrupt`: before 3.12, Python wraps one that comes in an import."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM interrupt as Ctrl-C does, where nobody handles it: what is half written is removed, in one line."""
    is_free = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_free:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        if is_free:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def refusing_unusable_names() -> Iterator[None]:
    """Turns what Python raises for a name that no file can have, or that this user may not use, into a `UserError`."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.errno not in _UNUSABLE:
            raise
        raise UserError(f"{error.filename}: {_UNUSABLE[error.errno]}") from error


@contextlib.contextmanager
def _refusing_full_output() -> Iterator[None]:
    """Turns what Python raises where standard output takes no more into a `UserError`, here and not at its end."""
    try:
        try:
            yield
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except OSError as error:
        # What is written to a file has its name by then.
        if error.errno not in FULL:
            raise
        raise UserError("standard output: found no space left, expected room for it") from error


def exit_status(run: Callable[..., int | None], *arguments: Any) -> int:
    """What `run(*arguments)` returns, 0 for None; a `UserError`'s status after its line, 2; 130 if interrupted."""
    try:
        with _interrupted_by_sigterm(), plain_interrupts(), refusing_unusable_names(), _refusing_full_output():
            return run(*arguments) or 0
    except UserError as error:
        print(f"error: {command_line_message(error)}", file=sys.stderr)
        _drop_unwritten()
        return error.status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _drop_unwritten() -> None:
    """Drops what standard output cannot take: else Python fails on it once more at its end, with status 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
