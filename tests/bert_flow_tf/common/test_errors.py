"""A command line's end: its status, and one line for a mistake."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from bert_flow_tf.common.errors import ArgumentError, UserError, exit_status, suggest, suggest_file

_ROOT = pathlib.Path(__file__).parents[3]


def test_status_is_what_was_returned_or_2_after_one_line(capsys):
    for returned, status in ((None, 0), (0, 0), (1, 1)):
        assert exit_status(lambda value: value, returned) == status

    def run(error):
        raise error

    for error, line in (
        (UserError("a.txt: found 1, expected 2"), "a.txt: found 1, expected 2"),
        # Python code has arguments, a command line has flags of their names.
        (ArgumentError("low_dim: found 1, expected 2"), "--low_dim: found 1, expected 2"),
        (ArgumentError("pooling: found 'max'"), "--pooling: found 'max'"),
        # Names and contents make no second line.
        (
            UserError("a\nb\x1b[2J\u2028c\udcff: found é 東"),
            r"a\nb\x1b[2J\u2028c\udcff: found é 東",
        ),
    ):
        assert exit_status(run, error) == 2
        assert capsys.readouterr().err == f"error: {line}\n"
    # No file can have this name.
    assert exit_status(os.stat, "a" * 300) == 2
    assert capsys.readouterr().err == f"error: {'a' * 300}: File name too long\n"
    assert exit_status(run, KeyboardInterrupt()) == 130
    # SIGTERM would end the process without a word.
    assert exit_status(signal.raise_signal, signal.SIGTERM) == 130
    assert capsys.readouterr().err == "interrupted\n" * 2
    for error in (ZeroDivisionError(), RuntimeError(), OSError()):
        with pytest.raises(type(error)):
            exit_status(run, error)


def test_what_may_be_meant_is_said_where_it_is_near(tmp_path):
    (tmp_path / "my_model").mkdir()
    assert suggest("encde", ["encode", "export"]) == "; did you mean encode?"
    assert suggest("other", ["encode", "export"]) == ""
    assert suggest("STSB", ["sts-b", "sick-r"]) == "; did you mean sts-b?"
    assert suggest_file(tmp_path / "my_modl") == "; did you mean my_model?"
    assert suggest_file(tmp_path / "nowhere" / "my_modl") == suggest_file("") == ""
    # Not the folder that both have in common.
    assert suggest_file(tmp_path / "corpus") == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-", ">/dev/full", "| true"])
def test_closed_or_full_streams_lose_no_result(closed, tmp_path):
    code = (
        "import sys; from bert_flow_tf.common import errors; errors.quiet_libraries(); "
        "open('out', 'w').write('whole'); sys.exit(errors.exit_status(print, 'x' * 100_000))"
    )
    command = f'{sys.executable} -c "{code}" {closed}'
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1
    assert done.returncode == (2 if closed == ">/dev/full" else 0)
    assert (tmp_path / "out").read_text() == "whole"


@pytest.mark.parametrize("closed", ["--input - --out e.npy <&-", "--input s.txt --out - >&-"])
def test_a_closed_stream_that_is_needed_is_named(closed, tmp_path):
    (tmp_path / "s.txt").write_text("w1\n")
    command = f"{sys.executable} -m bert_flow_tf.cli encode --bert_hub demo {closed}"
    path = {"PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and re.fullmatch(
        "error: .*standard (in|out)put: found it closed, .*\n", done.stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["s.txt"]


def test_only_printing_is_standard_outputs_error(capfd):
    names = {"__name__": "urllib3.connection", "os": os}
    exec(
        "def send():\n    read, write = os.pipe()\n    os.close(read)\n    os.write(write, b'x')",
        names,
    )
    assert exit_status(names["send"]) == 2
    assert capfd.readouterr().err == "error: BrokenPipeError: Broken pipe\n"


def test_a_command_reports_tensorflow_loading_and_progress(tmp_path):
    (tmp_path / "tensorflow.py").touch()
    (tmp_path / "library.py").write_text(
        "from absl import logging as one; one.info('a'); "
        "import logging as other; other.getLogger(__name__).info('b')"
    )
    code = """
import logging
from bert_flow_tf.common import errors
errors.quiet_libraries()
errors.log_progress()
import tensorflow, library, warnings
for name in ("bert_flow_tf.any_room.any_file", "bert_flow_tf.original.run"):
    logging.getLogger(name).info("a remark of %s", name)
logging.getLogger("bert_flow_tf.original.run").warning("an event of %s", name)
warnings.warn("few steps")
"""
    path = f"{tmp_path}{os.pathsep}{_ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines() == [
        "loading TensorFlow",
        "a remark of bert_flow_tf.any_room.any_file",
        "an event of bert_flow_tf.original.run",
        "warning: few steps",
    ]
