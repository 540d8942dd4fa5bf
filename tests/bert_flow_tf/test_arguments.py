"""A command line's end: its status, and one line for what a user can mend."""

import pytest

from bert_flow_tf.arguments import ArgumentParser, exit_status
from bert_flow_tf.errors import UserError


def test_a_parser_raises_what_argparse_would_print():
    with pytest.raises(UserError, match="unrecognized arguments: --no"):
        ArgumentParser(prog="x").parse_args(["--no"])


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1)])
def test_the_status_is_what_was_returned(returned, status):
    assert exit_status(lambda value: value, returned) == status


def test_a_users_mistake_is_one_line_and_status_2(capsys):
    def run():
        raise UserError("--flag: found 1, expected 2")

    assert exit_status(run) == 2
    assert capsys.readouterr().err == "error: --flag: found 1, expected 2\n"


def test_an_interruption_is_status_130_and_another_error_is_raised():
    def run(error):
        raise error

    assert exit_status(run, KeyboardInterrupt()) == 130
    with pytest.raises(ZeroDivisionError):
        exit_status(run, ZeroDivisionError())
