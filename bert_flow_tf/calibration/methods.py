"""The methods of calibration by name."""

import collections
import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_flow_tf.calibration.affine import (
    NullTopDirections,
    SoftWhitening,
    StandardNormalization,
    Whitening,
)
from bert_flow_tf.calibration.auto import Auto
from bert_flow_tf.common.errors import ArgumentError, suggest
from glow.parts import resolve_part

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

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
class _Kind:
    """A kind of method.

    Attributes:
      make: function from the numbers behind the name, None for a missing one, to a transformer with
        scikit-learn's `fit` and `transform`; None for the flow.
      number: what follows the name, a key of `_NUMBERS`.
      has_witness: True if docs/witness.md studied the witness's verdict about it.
    """

    make: Callable[..., Any] | None
    number: str = ""
    has_witness: bool = False


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


_KINDS = {
    "auto": _Kind(lambda d: Auto(_whole(d)), "[-D]", has_witness=True),
    "flow": _Kind(None, has_witness=True),
    "whitening": _Kind(lambda d: Whitening(_whole(d)), "[-D]", has_witness=True),
    "soft-whitening": _Kind(lambda e, d: SoftWhitening(e, _whole(d)), "-E[-D]", has_witness=True),
    # The rule of docs/witness.md was right in 36 of 43 claims about sn, which is too few; natsv
    # was not studied.
    "sn": _Kind(StandardNormalization),
    "natsv": _Kind(lambda k: NullTopDirections(int(k)), "-K"),
}
_LONGEST_LABEL = 40


@dataclasses.dataclass(frozen=True)
class Method:
    """A list of transformers, a flow, or a flow behind transformers.

    Each is learned on what the one before returns.

    Attributes:
      name: as in flags and records.
      label: as in tables, which is shorter for an object with many arguments.
      transformers: not yet fitted.
      has_flow: True if a flow comes last.
      calibrator: learns the flow, not yet fitted; None for one that the settings describe.
      has_witness: see `_Kind`.
    """

    name: str
    label: str
    transformers: tuple[Any, ...] = ()
    has_flow: bool = False
    calibrator: "FlowCalibrator | None" = None
    has_witness: bool = False

    @property
    def name_before_flow(self) -> str:
        """The name without the flow; "" for the flow alone."""
        return self.name.rpartition("+")[0] if self.has_flow else self.name


# The encoder as it is.
NONE = Method("none", "none", has_witness=True)


def find_methods(methods: Sequence[Any] | Mapping[str, Any]) -> list[Method]:
    """Return methods with different labels; the keys of a mapping are labels.

    The same name twice is one method. Two objects are two methods, even if they look alike.
    """
    if not methods:
        raise ArgumentError("methods: found none, expected one or more")
    if isinstance(methods, Mapping):
        return [
            dataclasses.replace(find_method(method), label=str(label))
            for label, method in methods.items()
        ]
    names: set[str] = set()
    counts: collections.Counter[str] = collections.Counter()
    found: list[Method] = []
    for method in methods:
        if isinstance(method, str):
            if method in names:
                continue
            names.add(method)
        one = find_method(method)
        counts[one.label] += 1
        count = counts[one.label]
        label = one.label if count == 1 else f"{one.label} ({count})"
        found.append(dataclasses.replace(one, label=label))
    return found


def find_method(method: Any) -> Method:
    """Return the method of a name, an object or a list.

    A name joins methods by "+", such as `whitening+flow`. An object has scikit-learn's `fit` and
    `transform`. It is cloned, so that a fit changes none that a user has.

    Raises `ArgumentError` for another name or object.
    """
    parts = [_part(one, method) for one in _flat(method)]
    name = "+".join(part.name for part in parts)
    if any(part.has_flow for part in parts[:-1]):
        raise ArgumentError(f"method: found {name}, expected a flow as the last method alone")
    return Method(
        name=name,
        label="+".join(part.label for part in parts),
        transformers=tuple(one for part in parts for one in part.transformers),
        has_flow=parts[-1].has_flow,
        calibrator=parts[-1].calibrator,
        has_witness=len(parts) == 1 and parts[0].has_witness,
    )


def _flat(method: Any) -> list[Any]:
    """Return the parts of a list or of a joined name."""
    if isinstance(method, str):
        return method.split("+")
    if isinstance(method, list | tuple) and method:
        return [part for one in method for part in _flat(one)]
    return [method]


def _part(part: Any, whole: Any) -> Method:
    if not isinstance(part, str):
        return _own_method(part)
    if ":" in part:
        return dataclasses.replace(_own_method(_made_by(part)), name=part, label=part)
    for name, kind in _KINDS.items():
        if found := re.fullmatch(re.escape(name) + _NUMBERS[kind.number], part):
            numbers = [None if text is None else float(text) for text in found.groups()]
            return Method(
                name=part,
                label=part,
                transformers=(kind.make(*numbers),) if kind.make else (),
                has_flow=kind.make is None,
                has_witness=kind.has_witness,
            )
    known = [f"{name}{kind.number}" for name, kind in _KINDS.items()]
    hint = suggest(part, ("auto", "flow", "whitening", "soft-whitening-0.1"))
    within = "" if part == whole else f" in {whole!r:.60}"
    raise ArgumentError(f"method: found {part!r}{within}, expected {', '.join(known)}{hint}")


def _made_by(path: str) -> Any:
    """Call the class or function `module:name` of an imported module."""
    try:
        return resolve_part(path)()
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"method: {path}: {error}") from error


def _own_method(method: Any) -> Method:
    if inspect.isclass(method) or not (hasattr(method, "fit") and hasattr(method, "transform")):
        raise ArgumentError(
            f"method: found {method!r:.60}, expected a name or an object with fit and transform"
        )
    # The import takes seconds, and no name of a method needs it.
    from glow.calibrator import FlowCalibrator

    name = " ".join(repr(method).split())
    label = _short_name(name, method)
    own = cloned(method)
    if isinstance(own, FlowCalibrator):
        return Method(name="flow", label=label, has_flow=True, calibrator=own, has_witness=True)
    return Method(name=name, label=label, transformers=(own,))


def cloned(transformer: Any) -> Any:
    """Return an unfitted copy of a user's transformer or calibrator.

    A calibrator's callbacks and loss are the user's own, because he wants to see what they saw.
    """
    from sklearn.base import clone

    from glow.calibrator import FlowCalibrator

    if isinstance(transformer, FlowCalibrator):
        return type(transformer)(**transformer.get_params(deep=False))
    return clone(transformer, safe=False)


def _short_name(name: str, method: Any) -> str:
    """Return a short name, or else the names of its classes."""
    if len(name) <= _LONGEST_LABEL:
        return name
    steps = getattr(method, "steps", [("", method)])
    return "+".join(type(step).__name__ for _, step in steps)
