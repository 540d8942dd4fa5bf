"""A command line's end: its status, and one line for what a user can mend."""

import os
import signal
import subprocess
import sys

import pytest

from bert_flow_tf.errors import (
    ArgumentError,
    UserError,
    exit_status,
    nearest,
    nearest_file,
)
from tests.refusals import refusal


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1)])
def test_the_status_is_what_was_returned(returned, status):
    assert exit_status(lambda value: value, returned) == status


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("a.txt: found 1, expected 2"), "error: a.txt: found 1, expected 2\n"),
        # Python code has arguments, a command line has flags of their names.
        (ArgumentError("low_dim: found 1, expected 2"), "error: --low_dim: found 1, expected 2\n"),
        (ArgumentError("pooling: found 'max'"), "error: --sentence_embedding_type: found 'max'\n"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(error, line, capsys):
    def run():
        raise error

    assert exit_status(run) == 2
    assert capsys.readouterr().err == line


def test_what_may_be_meant_is_said_where_it_is_near(tmp_path):
    (tmp_path / "my_model").mkdir()
    assert nearest("encde", ["encode", "export"]) == "; did you mean encode?"
    assert nearest("other", ["encode", "export"]) == ""
    assert nearest("STSB", ["sts-b", "sick-r"]) == "; did you mean sts-b?"
    assert nearest_file(tmp_path / "my_modl") == "; did you mean my_model?"
    assert nearest_file(tmp_path / "nowhere" / "my_modl") == nearest_file("") == ""
    # Not the folder that both have in common.
    assert nearest_file(tmp_path / "corpus") == ""


_AS_NOBODY = """
import os, sys
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.errors import exit_status
if os.geteuid() == 0:
    os.seteuid(65534)
sys.exit(exit_status(check_handle, sys.argv[1], "bert_hub"))
"""


def test_a_folder_that_one_may_not_enter_is_one_line(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o000)
    command = [sys.executable, "-c", _AS_NOBODY, str(tmp_path / "closed" / "bert")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refusal(done.returncode, done.stderr, "closed/bert: Permission denied")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">/dev/full", "| true"])
def test_closed_or_full_streams_give_no_traceback(closed):
    code = "import sys; from bert_flow_tf.errors import exit_status; sys.exit(exit_status(print, 'x' * 100_000))"
    done = subprocess.run(
        f'{sys.executable} -c "{code}" {closed}', shell=True, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1
    assert done.returncode == (2 if closed == ">/dev/full" else 0)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_results_are_written_without_standard_streams(closed, tmp_path):
    code = "from bert_flow_tf import errors; errors.quiet_libraries(); print(1); open('out', 'w').write('whole')"
    done = subprocess.run(f'{sys.executable} -c "{code}" {closed}', shell=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "out").read_text() == "whole"


def test_a_name_that_no_file_can_have_is_one_line_and_status_2(capsys):
    assert exit_status(os.stat, "a" * 300) == 2
    assert capsys.readouterr().err == f"error: {'a' * 300}: File name too long\n"


def test_an_interruption_is_status_130_and_another_error_is_raised(capsys):
    def run(error):
        raise error

    assert exit_status(run, KeyboardInterrupt()) == 130
    # And by SIGTERM, which ends a process without a word before and after.
    assert exit_status(signal.raise_signal, signal.SIGTERM) == 130
    assert capsys.readouterr().err == "interrupted\n" * 2
    for error in (ZeroDivisionError(), RuntimeError(), OSError()):
        with pytest.raises(type(error)):
            exit_status(run, error)


def test_what_names_and_contents_bring_with_them_makes_no_second_line():
    error = UserError("a\nb\x1b[2J\u2028c\udcff: found é 東, expected x")
    assert str(error) == r"a\nb\x1b[2J\u2028c\udcff: found é 東, expected x"
