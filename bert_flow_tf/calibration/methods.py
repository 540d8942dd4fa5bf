"""The methods of calibration by name."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_flow_tf.calibration.affine import (
    FullRankWhitening,
    NullTopDirections,
    SoftWhitening,
    Whitening,
)
from bert_flow_tf.calibration.auto import Auto
from bert_flow_tf.common.errors import ArgumentError, suggest
from bert_flow_tf.common.records import WHITENED_FLOW

# What follows a method's name: "" is nothing, `D` and `K` whole numbers, `E` a positive number; in
# brackets, it may be missing.
_NUMBERS = {
    "": r"",
    "-K": r"-([1-9]\d{0,5})",
    "-E": r"-(?![0.]+$)((?:\d{1,5}\.)?\d{1,9})",
    "[-D]": r"(?:-([1-9]\d{0,5}))?",
    "-E[-D]": r"-(?![0.]+(?:-|$))((?:\d{1,5}\.)?\d{1,9})(?:-([1-9]\d{0,5}))?",
}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of method.

    Attributes:
      make: function from the numbers behind the name, None for a missing one, to a transformer with
        scikit-learn's `fit` and `transform`; None for the flow alone.
      number: what follows the name, a key of `_NUMBERS`.
      has_flow: True if a flow is learned, on what the transformer returns.
      has_witness: True if docs/witness.md studied the witness's verdict about it.
    """

    make: Callable[..., Any] | None
    number: str = ""
    has_flow: bool = False
    has_witness: bool = False

    def __post_init__(self) -> None:
        if self.number not in _NUMBERS:
            raise ArgumentError(f"number: found {self.number!r}, expected {', '.join(_NUMBERS)}")


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def _nulled(count: float | None, *, normalizes: bool) -> NullTopDirections:
    return NullTopDirections(int(count or 0), normalizes)


# A program may add its own; `find_method` reads the names.
METHODS: dict[str, Kind] = {
    "auto": Kind(lambda d: Auto(_whole(d)), "[-D]", has_witness=True),
    "flow": Kind(None, has_flow=True, has_witness=True),
    # The study of docs/witness.md has no flow behind a whitening.
    WHITENED_FLOW: Kind(lambda _: FullRankWhitening(), has_flow=True),
    "whitening": Kind(lambda d: Whitening(_whole(d)), "[-D]", has_witness=True),
    "soft-whitening": Kind(lambda e, d: SoftWhitening(e, _whole(d)), "-E[-D]", has_witness=True),
    # The rule of docs/witness.md was right in 36 of 43 claims about sn, which is too few; natsv
    # was not studied.
    "sn": Kind(lambda _: _nulled(None, normalizes=True)),
    "natsv": Kind(lambda k: _nulled(k, normalizes=False), "-K"),
    "sn+natsv": Kind(lambda k: _nulled(k, normalizes=True), "-K"),
}
_LONGEST_LABEL = 40
DEFAULT_METHODS = ("auto", "whitening", "soft-whitening-0.1", "flow")


@dataclasses.dataclass(frozen=True)
class Method:
    """A method: a transformer, a flow, or a flow behind a transformer.

    Attributes:
      name: as in flags and records.
      label: as in tables, which is shorter for an object with many arguments.
      transformer: not yet fitted, or None.
      flow: True to learn a flow; or a `glow.FlowCalibrator`, which learns it.
      has_witness: see `Kind`.
    """

    name: str
    transformer: Any = None
    flow: Any = False
    has_witness: bool = False
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)


def find_methods(methods: Sequence[Any] | Mapping[str, Any]) -> list[Method]:
    """Return methods with different labels; the keys of a mapping are labels."""
    if isinstance(methods, Mapping):
        return [
            dataclasses.replace(find_method(method), label=str(label))
            for label, method in methods.items()
        ]
    found: list[Method] = []
    for method in map(find_method, methods):
        same = [one for one in found if one.label.partition(" (")[0] == method.label]
        # A name given twice is the same method.
        is_other = any(one.name != method.name for one in same)
        label = f"{method.label} ({len(same) + 1})" if is_other else method.label
        found.append(dataclasses.replace(method, label=label))
    return found


def find_method(method: Any) -> Method:
    """Return a method by its name, or from an object with `fit`.

    Raises `ArgumentError` for another name or object.
    """
    if not isinstance(method, str):
        return _own_method(method)
    for name, kind in METHODS.items():
        if found := re.fullmatch(re.escape(name) + _NUMBERS[kind.number], method):
            numbers = [None if text is None else float(text) for text in found.groups()]
            return Method(
                name=method,
                transformer=kind.make and kind.make(*(numbers or [None])),
                flow=kind.has_flow,
                has_witness=kind.has_witness,
            )
    known = [f"{name}{kind.number}" for name, kind in METHODS.items()]
    hint = suggest(method, ("auto", "flow", "whitening", "soft-whitening-0.1"))
    raise ArgumentError(f"method: found {method!r}, expected {', '.join(known)}{hint}")


def _own_method(method: Any) -> Method:
    is_object = not isinstance(method, type)
    if not (is_object and hasattr(method, "fit") and hasattr(method, "transform")):
        raise ArgumentError(
            f"method: found {method!r:.60}, expected a name or an object with fit and transform"
        )
    # The import takes seconds, and no name of a method needs it.
    from glow.calibrator import FlowCalibrator

    if isinstance(method, FlowCalibrator):
        return Method(name="flow", flow=method, has_witness=True)
    name = " ".join(repr(method).split())
    return Method(name=name, transformer=method, label=_short_name(name, method))


def _short_name(name: str, method: Any) -> str:
    """Return a short name, or else the names of its classes."""
    if len(name) <= _LONGEST_LABEL:
        return name
    steps = getattr(method, "steps", [("", method)])
    return "+".join(type(step).__name__ for _, step in steps)
