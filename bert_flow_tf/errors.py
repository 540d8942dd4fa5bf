"""The one exception that means "the user can mend this"."""


class UserError(Exception):
    """A mistake in a flag, a file or its contents.

    The message is one line that names the file, line, column or flag, what was found and what was expected. Command
    lines print it after ``error: `` on stderr, without a traceback, and exit with status 2.
    """
