"""JSON files of results, each value checked as it is read: a slip in one is a line that names file and key."""

import json
import math
import pathlib
import re
from collections.abc import Sequence

from bert_flow_tf.errors import UserError

FORMAT_VERSION = 1


class Record:
    """A JSON object of a file.

        record = read_record("evaluation.json")
        record.part("model").text("sentence_embedding_type")

    A method raises `UserError` where the key is missing or its value of another kind; with `optional`, a key that is
    missing or null gives None.

    Args:
      path: of the file, for errors.
      values: dict.
      place: keys that lead to the object, for errors.
    """

    def __init__(self, path: pathlib.Path, values: dict, place: str = ""):
        self.path = path
        self.values = values
        self._place = place

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str, optional: bool = False) -> str | None:
        return self._value(key, str, "text", optional)

    def flag(self, key: str, optional: bool = False) -> bool | None:
        return self._value(key, bool, "true or false", optional)

    def number(self, key: str, optional: bool = False) -> float | None:
        return self._value(key, (int, float), "a number", optional)

    def whole(self, key: str, optional: bool = False) -> int | None:
        return self._value(key, int, "a whole number", optional)

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One of the choices."""
        value = self.text(key)
        if value not in choices:
            raise self.error(key, _shown(value), f"one of {', '.join(choices)}")
        return value

    def digits(self, key: str) -> int:
        """A whole number that is written as text."""
        value = self.text(key)
        if not re.fullmatch(r"[0-9]{1,9}", value):
            raise self.error(key, _shown(value), "a whole number as text")
        return int(value)

    def numbers(self, key: str, or_none: bool = False) -> list[float]:
        """A list of numbers; it may be empty with `or_none`."""
        values = self._value(key, list, "a list of numbers")
        if not (values or or_none) or not all(_is(value, (int, float)) for value in values):
            raise self.error(key, _shown(values), f"a list of numbers{'' if or_none else ', not empty'}")
        return values

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty where there is none."""
        values = self._value(key, list, "a list of texts", optional=True) or []
        if not all(isinstance(value, str) for value in values):
            raise self.error(key, _shown(values), "a list of texts")
        return values

    def setting(self, key: str) -> float | bool | None:
        """A number, true or false; None where it is missing or null."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, int | float):
            raise self.error(key, _shown(value), "a number, true or false")
        return value

    def score(self, key: str, optional: bool = False) -> float | None:
        """A correlation or an area, times 100; from a fraction in the file."""
        value = self.number(key, optional)
        if value is not None and not -1 <= value <= 1:
            raise self.error(key, value, "a fraction from -1 to 1")
        return None if value is None else 100 * value

    def scores(self, key: str) -> list[float]:
        """As `score`, of a list that is not empty."""
        values = self.numbers(key)
        for value in values:
            if not -1 <= value <= 1:
                raise self.error(key, value, "fractions from -1 to 1")
        return [100 * value for value in values]

    def part(self, key: str, optional: bool = False) -> "Record | None":
        value = self._value(key, dict, "an object", optional)
        return None if value is None else Record(self.path, value, f"{self._place}{key}.")

    def parts(self, key: str | None = None) -> "dict[str, Record]":
        """The objects in an object of objects, by their names: that under the key, or this one."""
        record = self if key is None else self.part(key)
        return {name: record.part(name) for name in record.values}

    def listed(self, key: str) -> "list[Record]":
        """The objects of a list."""
        values = self._value(key, list, "a list of objects")
        if not all(isinstance(value, dict) for value in values):
            raise self.error(key, _shown(values), "a list of objects")
        return [Record(self.path, value, f"{self._place}{key}[{i}].") for i, value in enumerate(values)]

    def error(self, key: str, found, expected: str) -> UserError:
        """The error of a value that is not as it should be."""
        return UserError(f"{self.path}: {self._place}{key}: found {found}, expected {expected}")

    def _value(self, key, kinds, words, optional=False):
        value = self.values.get(key)
        if value is None and optional:
            return None
        if key not in self.values:
            raise self.error(key, "nothing", words)
        if not _is(value, kinds):
            raise self.error(key, _shown(value), words)
        return value


def read_record(path: pathlib.Path) -> Record:
    """The JSON object in a file.

    Raises:
      UserError: the file cannot be read, is not JSON or no object, holds NaN or an infinite number, or is of a
        `format_version` that this version does not know.
    """

    def finite(text):
        value = float(text)
        if not math.isfinite(value):
            raise UserError(f"{path}: found {text}, expected finite numbers")
        return value

    try:
        values = json.loads(path.read_text(encoding="utf-8"), parse_constant=finite, parse_float=finite)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}), expected a file of results") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: found text that is not JSON ({error}), expected results of bert-flow") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: found {_shown(values)}, expected an object with results of bert-flow")
    if values.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise UserError(f"{path}: found format_version {_shown(values['format_version'])}, expected {FORMAT_VERSION}")
    return Record(path, values)


def _is(value, kinds):
    # bool is an int to Python, and no number in a file.
    return isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool))


def _shown(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
