"""The command line as a user meets it, and what a mistake must look like there."""

from click.testing import CliRunner

from bert_flow_tf.cli import main


def bert_flow(*arguments):
    """Outcome of `bert-flow` with these arguments."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeeds(*arguments):
    """What the command prints; it must end well."""
    outcome = bert_flow(*arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def refused(*arguments):
    """The line that the command ends with; its status must be 2 and the line its only output."""
    outcome = bert_flow(*arguments)
    assert outcome.exit_code == 2, (outcome.output, outcome.exception)
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr.removeprefix("error: ").rstrip("\n")


def files_below(folder):
    """Every file and folder below it, with what the files hold."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
