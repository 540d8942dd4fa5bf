"""What a call of a model server can end with, each in one line."""

from bert_flow_tf.errors import UserError

_LONGEST_REASON = 500


class ServingError(UserError):
    """A call that gave no usable answer. The message names the server, what was found and what was expected."""


class UnavailableError(ServingError):
    """Nobody answers there, or the server says that it cannot now: the one case in which a further try may help."""


class NotFoundError(ServingError):
    """The server knows no such model, or no such version of it."""


class NoAnswerInTimeError(ServingError):
    """The deadline passed before there was an answer."""


def one_line(text) -> str:
    """`text`, a server's, on one line: runs of white space as one space, and no more than 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"


def asked(signature, inputs):
    """What a request asked for, to name it where a server refuses it: TensorFlow's own words may name no input.

    Args:
      signature: name of the signature.
      inputs: dict of input's name -> list of str.
    """
    return f"signature {signature}, input {', '.join(f'{name} (string [{len(v)}])' for name, v in inputs.items())}"


def unavailable(target, reason):
    """`UnavailableError` of a server that cannot be reached, or says that it cannot answer now."""
    return UnavailableError(f"{target}: unavailable ({one_line(reason)}), expected a model server that answers")


def no_answer(target, seconds):
    """`NoAnswerInTimeError` of a server that was given so many seconds, a float."""
    return NoAnswerInTimeError(f"{target}: no answer within {seconds:.3g} s, expected one before the timeout")
