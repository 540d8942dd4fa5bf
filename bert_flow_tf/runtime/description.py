"""The description of an exported model, `export.json`, read without msgspec."""

import dataclasses
import json
import pathlib
from typing import Any

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.version import DESCRIPTION_FILE, FORMAT_VERSION

# These fields are read, and must have these types.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "max_seq_length": int,
    "embedding_size": int,
    "normalized": bool,
    "dtype": str,
    "probes": dict,
    "fingerprint": str,
    "stages": list,
    "model": dict,
    "prompts": dict,
    "default_prompt_name": (str, type(None)),
    "similarity_fn_name": str,
    "tolerance": float,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """The model and options of an export, written beside it as JSON."""

    format_version: int = FORMAT_VERSION
    encoder_fingerprint: str
    do_lower_case: bool
    sentence_embedding_type: str
    max_seq_length: int
    embedding_size: int
    low_dim: int
    flow_config: dict[str, Any] | None
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


def read_description(folder: pathlib.Path) -> Description:
    """Read an export's description; raise `UserError` for another file."""
    path = folder / DESCRIPTION_FILE
    with reading(path, "the description of an export"):
        found = json.loads(path.read_bytes())
        version = found.get("format_version")
        if version != FORMAT_VERSION:
            raise UserError(f"{path}: found format_version {version}, expected {FORMAT_VERSION}")
        for name, kind in _TYPES.items():
            if name not in found:
                raise UserError(
                    f"{path}: {name}: missing; export again with this version of bert_flow_tf"
                )
            if not isinstance(found[name], kind):
                raise UserError(f"{path}: {name}: found {found[name]!r:.40}, expected another type")
        names = [field.name for field in dataclasses.fields(Description)]
        return Description(**{name: found[name] for name in names})
