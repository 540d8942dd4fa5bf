"""The description of an exported model, `export.json`, read without msgspec."""

import dataclasses
import json
import pathlib
import types
from typing import Any, get_args, get_origin, get_type_hints

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.version import DESCRIPTION_FILE, FORMAT_VERSION


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """The model and options of an export, written beside it as JSON.

    Raises:
      ValueError: the file is damaged.
    """

    format_version: int = FORMAT_VERSION
    max_seq_length: int
    embedding_size: int
    normalized: bool
    dtype: str
    model: dict[str, Any]  # `BertFlow.record`
    probes: dict[str, list[float]]  # embeddings of some sentences, for `bert-flow check-served`
    fingerprint: str  # of the export's embeddings, see `SentenceModel.fingerprint`
    # the recipes of encoder, maps and tail, see `SentenceModel.recipe`
    stages: list[dict[str, Any]]
    prompts: dict[str, str]
    default_prompt_name: str | None
    similarity_fn_name: str
    # the largest difference from the model that the export's check allows, of a channel's size
    tolerance: float

    def __post_init__(self) -> None:
        if not self.probes:
            raise ValueError("probes: found none, expected some")
        for text, row in self.probes.items():
            if len(row) != self.embedding_size:
                found = f"found {len(row)} numbers, expected {self.embedding_size}"
                raise ValueError(f"probes[{text!r:.40}]: {found}")
        if len(self.stages) < 2:
            raise ValueError(f"stages: found {len(self.stages)}, expected an encoder and a tail")
        for name, kind in (("norm", str), ("low_dim", int)):
            _check(self.stages[-1].get(name), kind, f"stages[-1][{name!r}]")


def read_description(folder: pathlib.Path) -> Description:
    """Read an export's description; raise `UserError` for another file."""
    path = folder / DESCRIPTION_FILE
    with reading(path, "the description of an export"):
        found = json.loads(path.read_bytes())
        _check(found, dict, "the file")
        if kind := found.get("kind"):
            # `Calibrated.export` gives its record this name, too.
            found_kind = f"found the export of a {kind}, which sentence-transformers opens"
            raise UserError(f"{path}: {found_kind}; expected a model's export")
        version = found.get("format_version")
        if version != FORMAT_VERSION:
            raise UserError(f"{path}: found format_version {version}, expected {FORMAT_VERSION}")
        kinds = get_type_hints(Description)
        for name, kind in kinds.items():
            if name not in found:
                raise UserError(
                    f"{path}: {name}: missing; export again with this version of bert_flow_tf"
                )
            _check(found[name], kind, name)
        return Description(**{name: found[name] for name in kinds})


def _check(value: Any, kind: Any, place: str) -> None:
    """Raise `ValueError` unless a JSON value has a type, such as `dict[str, list[float]]`."""
    kinds = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if Any in kinds or (value is None and type(None) in kinds):
        return
    expected = get_origin(kinds[0]) or kinds[0]
    # JSON has one type of numbers.
    is_float = expected is float and type(value) is int
    if type(value) is not expected and not is_float:
        raise ValueError(f"{place}: found {value!r:.40}, expected {expected.__name__}")
    inner = get_args(kinds[0])
    if expected is list and inner:
        for i, one in enumerate(value):
            _check(one, inner[0], f"{place}[{i}]")
    if expected is dict and inner:
        for key, one in value.items():
            _check(one, inner[1], f"{place}[{key!r:.40}]")
