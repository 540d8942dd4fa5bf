"""Checks of mistakes: one line, exit status 2, nothing written.

assert "--input" in refused("encode", "--out", path)                # bert-flow, in this process
refused("fit", *arguments, "--out", folder, unchanged=folder)       # … and the folder keeps every
byte refused_by(eval_stsb.main, "--is_test", "2")                        # any main(arguments) ->
status refusal(done.returncode, done.stderr, "serve.sh", "--port")         # a process that has
ended with user_error("pooling: found 'max'"): from_hub("demo", pooling="max")
"""

import contextlib
import io
import pathlib
import resource
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bert_flow_tf.cli import main
from bert_flow_tf.common.errors import UserError


def bert_flow(*arguments: object, **options: Any) -> Result:
    """Return the outcome of `bert-flow` with these arguments."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], **options)


def succeeds(*arguments: object, **options: Any) -> str:
    """Return the output of a command that must succeed."""
    outcome = bert_flow(*arguments, **options)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return outcome.stdout


def refused(*arguments: object, unchanged: pathlib.Path | None = None, **options: Any) -> str:
    """The line, without `error: `, that `bert-flow` ends with.

    Args:
      *arguments: of the command line.
      unchanged: a folder that the command must leave as it is.
      **options: as of `bert_flow`.
    """
    with _unchanged(unchanged):
        outcome = bert_flow(*arguments, **options)
    assert outcome.stdout == "", outcome.stdout
    return refusal(outcome.exit_code, outcome.stderr)


def refused_by(
    function: Callable[[Sequence[str]], int],
    *arguments: object,
    unchanged: pathlib.Path | None = None,
) -> str:
    """The line, without `error: `, that a command line's `main(arguments) -> status` ends with."""
    out, err = io.StringIO(), io.StringIO()
    with _unchanged(unchanged), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = function([str(argument) for argument in arguments])
    assert out.getvalue() == "", out.getvalue()
    return refusal(status, err.getvalue())


def refusal(status: int, stderr: str, *parts: str, after_log: bool = False) -> str:
    """Return the error line of a command without `error: `.

    Args:
      status: must be 2.
      stderr: must be that one line.
      *parts: must be in the line.
      after_log: whether the lines of a log may come before it.
    """
    assert status == 2, (status, stderr)
    lines = stderr.splitlines()
    assert len(lines) == 1 or (after_log and lines), stderr
    assert [line.startswith("error: ") for line in lines] == [False] * (len(lines) - 1) + [True], (
        stderr
    )
    assert "Traceback" not in stderr, stderr
    for part in parts:
        assert part in lines[-1], (part, lines[-1])
    return lines[-1].removeprefix("error: ")


@contextlib.contextmanager
def user_error(*parts: str) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a `UserError` of one line with these parts."""
    with pytest.raises(UserError) as error:
        yield error
    line = str(error.value)
    assert "\n" not in line, line
    for part in parts:
        assert part in line, (part, line)


@contextlib.contextmanager
def small_disk(most_bytes: int) -> Iterator[None]:
    """Limit the size of files, like a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def files_below(folder: pathlib.Path) -> dict[pathlib.Path, bytes | None]:
    """Return all files' bytes below a folder; None for folders."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@contextlib.contextmanager
def _unchanged(folder: pathlib.Path | None) -> Iterator[None]:
    before = files_below(folder) if folder else None
    yield
    if folder:
        assert files_below(folder) == before, f"{folder} has changed"
