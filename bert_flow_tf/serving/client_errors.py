"""What a call of a model server can end with, each in one line."""

import dataclasses
from collections.abc import Mapping, Sequence

from bert_flow_tf.errors import UserError

# Sentences by the name of the signature's input.
Inputs = Mapping[str, Sequence[str]]
LARGEST_ANSWER = 1 << 28
_LONGEST_REASON = 500


def most_bytes(inputs: Inputs | None) -> int:
    """Bytes that a client takes of an answer to these inputs: 1 MiB, and for a sentence 256 KiB, some 12,000 numbers.

    What is read of them takes up to 30 times as much memory.
    """
    rows = len(next(iter(inputs.values()))) if inputs else 0
    return min(LARGEST_ANSWER, (1 << 20) + (rows << 18))


class ServingError(UserError):
    """A call gave no usable answer. The message names the server, what was found and what was expected."""


class UnavailableError(ServingError):
    """Nobody answers there, or the server says that it cannot now: the one case in which another try may help."""


class NotFoundError(ServingError):
    """The server knows no such model, or no such version of it."""


class NoAnswerInTimeError(ServingError):
    """The deadline passed before there was an answer."""


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """The model that a client asks at `target`, with the words for what a call of it ends with."""

    target: str
    name: str

    def __str__(self) -> str:
        return f"{self.target}, model {self.name}"

    def unexpected(self, signature: str, found: str, expected: str) -> ServingError:
        """The error for an answer that has not what its signature promises."""
        return ServingError(f"{self}, signature {signature}: found {found}, expected {expected}")

    def too_large(self, most: int) -> ServingError:
        """The error for an answer of more than `most` bytes."""
        return ServingError(
            f"{self.target}: found more than {most / (1 << 20):g} MiB of an answer, expected TensorFlow Serving's"
        )

    def unavailable(self, reason: str) -> UnavailableError:
        """The error for a server that cannot be reached, or that cannot answer now."""
        return UnavailableError(
            f"{self.target}: unavailable ({one_line(reason)}), expected a model server that answers"
        )

    def no_answer(self, seconds: float) -> NoAnswerInTimeError:
        """The error for a call that got no answer in the seconds that it had."""
        return NoAnswerInTimeError(f"{self.target}: no answer within {seconds:.3g} s, expected one before the timeout")

    def refusal(self, code: str, reason: str, signature: str, inputs: Inputs) -> ServingError:
        """The error for an answer that is a status: gRPC's name of it, or `HTTP 404`, and the server's reason."""
        if code in ("NOT_FOUND", "HTTP 404"):
            return NotFoundError(f"{self}: {code}: {one_line(reason)}")
        asked = ""
        if inputs and code in ("INVALID_ARGUMENT", "HTTP 400"):
            # TensorFlow's own message may name no input.
            names = ", ".join(f"{name} (string [{len(sentences)}])" for name, sentences in inputs.items())
            asked = f", signature {signature}, input {names}"
        return ServingError(f"{self}{asked}: {code}: {one_line(reason)}")


def one_line(text: str) -> str:
    """A server's text on one line: runs of white space as one space, and no more than 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"
