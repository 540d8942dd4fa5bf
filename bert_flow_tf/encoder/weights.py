"""A BERT's configuration, vocabulary and weights, by TF1's names."""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import read_json
from bert_flow_tf.common.reading import AnyPath, reading
from bert_flow_tf.common.records import Training
from bert_flow_tf.common.version import FORMAT_VERSION
from glow.arrays import check_arrays

if TYPE_CHECKING:
    from bert_flow_tf.encoder.bert import Bert

LAYER_NORM_EPS = 1e-12
Activation = Literal["gelu_tanh", "gelu_erf", "relu", "tanh", "linear"]
_Rate = Annotated[float, msgspec.Meta(ge=0, lt=1)]
WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
# A new version would invalidate the fingerprints in existing runs and saved models.
_FINGERPRINT_VERSION = 2


_Width = Annotated[int, msgspec.Meta(ge=1, le=2**17)]


class BertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A BERT's shape, activation and rates, by the names of `bert_config.json`."""

    # The upper limits are far above all published models; without them, a wrong number would fill
    # the memory.
    vocab_size: Annotated[int, msgspec.Meta(ge=1, le=2**24)]
    hidden_size: _Width
    num_hidden_layers: Annotated[int, msgspec.Meta(ge=1, le=256)]
    num_attention_heads: _Width
    intermediate_size: _Width
    max_position_embeddings: _Width
    type_vocab_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    hidden_act: Activation
    hidden_dropout_prob: _Rate = 0.1
    attention_probs_dropout_prob: _Rate = 0.1
    initializer_range: _Rate = 0.02
    position_embedding_type: Literal["absolute"] = "absolute"
    layer_norm_eps: Annotated[float, msgspec.Meta(ge=LAYER_NORM_EPS, le=LAYER_NORM_EPS)] = (
        LAYER_NORM_EPS
    )

    def __post_init__(self) -> None:
        if self.hidden_size % (heads := self.num_attention_heads):
            raise ValueError(
                f"num_attention_heads: found {heads}, expected a divisor of hidden_size"
            )


class TextRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules by which text becomes word pieces, by default TF1's."""

    do_lower_case: bool  # True if the vocabulary is uncased
    strip_accents: bool | None = None  # None for the same as `do_lower_case`
    tokenize_chinese_chars: bool = True  # True if each CJK character is a word
    # tokens that stay whole -> True if they are looked for in lower-cased text
    added_tokens: dict[str, bool] = {}

    @property
    def unlike_tf1(self) -> dict[str, Any]:
        """The rules that TF1's tokenizer does not have."""
        tf1 = TextRules(do_lower_case=self.do_lower_case)
        rules = {name: getattr(self, name) for name in TextRules.__struct_fields__}
        return {name: rule for name, rule in rules.items() if rule != getattr(tf1, name)}

    def with_origin(self, kind: str, **fields: Any) -> "SourceRecord":
        """Return the record of another encoder with these rules."""
        return SourceRecord(
            kind=kind, do_lower_case=self.do_lower_case, **self.unlike_tf1, **fields
        )


class SourceRecord(TextRules, frozen=True, kw_only=True):
    """An encoder's origin, the `source.json` of its folder."""

    format_version: int = FORMAT_VERSION
    kind: str  # the origin, such as "TF1 checkpoint"
    started_from: str | None = None  # fingerprint of the encoder from which this one was trained
    training: Training | None = None  # the training since then; None if unknown
    dev_losses: dict[int, float] = {}  # of `pretrain`, by step, in nats per predicted word piece
    # The others are a sentence-transformers folder's settings.
    pooling: str | None = None
    max_seq_length: int | None = None
    normalize: bool = False  # True if its embeddings have norm 1
    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None
    similarity_fn_name: Literal["cosine", "dot", "euclidean", "manhattan"] = "cosine"


class LazyArrays(Mapping[str, np.ndarray]):
    """Arrays by name, read at each access, not kept in memory."""

    def __init__(self, readers: Mapping[str, Callable[[], np.ndarray]]) -> None:
        self._readers = readers

    def __getitem__(self, name: str) -> np.ndarray:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A BERT's weights and what they need.

    Attributes:
      vocab: word pieces in the order of their ids.
      weights: dict of TF1 name -> float32 array, checked by `check_weights`; kernels are [in, out].
    """

    kind: ClassVar[str] = "bert"

    config: BertConfig
    vocab: list[str]
    weights: Mapping[str, np.ndarray]
    record: SourceRecord
    files_digest: str | None = None  # of the SavedModel from which they were read

    def __post_init__(self) -> None:
        if (found := self.config.vocab_size) != (pieces := len(self.vocab)):
            raise UserError(
                f"vocab_size: found {found}, expected the {pieces} pieces of the vocabulary"
            )

    @property
    def max_positions(self) -> int:
        """The most word pieces of a text."""
        return self.config.max_position_embeddings

    def network(self, *, trainable: bool) -> "Bert":
        """Return the BERT, to compute with."""
        # Whoever reads records does not load TensorFlow.
        from bert_flow_tf.encoder.bert import Bert

        return Bert(self.weights, self.config, trainable=trainable)

    @functools.cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of weights, vocabulary and text rules, equal for every format."""
        heads = self.config.num_attention_heads
        act = self.config.hidden_act
        rules = self.record.unlike_tf1
        digest = vocabulary_digest(
            self.vocab, self.record.do_lower_case, heads, act, *([rules] if rules else [])
        )
        for name, value in sorted(self.weights.items()):
            # Hugging Face's files hold kernels transposed, so these rows are contiguous.
            rows = np.ascontiguousarray(value.T)
            digest.update(f"{name} {rows.shape}\n".encode())
            digest.update(rows.data)
        return digest.hexdigest()


def vocabulary_digest(vocab: Sequence[str], *more: Any) -> "hashlib._Hash":
    """Return the digest that an encoder's fingerprint begins with."""
    return hashlib.sha256(msgspec.json.encode([_FINGERPRINT_VERSION, vocab, more]))


def read_bert_config(
    path: AnyPath, keys: Mapping[str, str] | None = None, *, gelu: str = "gelu_erf"
) -> BertConfig:
    """Read a `BertConfig`; raise `UserError` for unsupported values.

    Args:
      keys: dict from the file's keys to BERT's, where they differ.
      gelu: meaning of "gelu" in the file: exact for Hugging Face, the tanh approximation for TF1.
    """
    found = read_json(path, dict, expected="a BERT's configuration", versioned=False)
    fields = {(keys or {}).get(key, key): value for key, value in found.items()}
    activations = {"gelu": gelu} | dict.fromkeys(
        ("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"
    )
    with reading(path, "a BERT with absolute positions"):
        act = fields.get("hidden_act", "")
        fields["hidden_act"] = activations.get(act, act)
        return msgspec.convert(fields, BertConfig)


def hugging_face_config(config: BertConfig) -> dict[str, Any]:
    """Return the content of `config.json`."""
    act = config.hidden_act
    names = {"gelu_erf": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}
    kind = {"architectures": ["BertModel"], "model_type": "bert", "layer_norm_eps": LAYER_NORM_EPS}
    return kind | msgspec.structs.asdict(config) | {"hidden_act": names.get(act, act)}


def variable_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a BERT's variables by TF1 name."""
    width = config.hidden_size
    inner = config.intermediate_size
    attention = dict.fromkeys(
        ("self/query", "self/key", "self/value", "output/dense"), (width, width)
    )
    layer: dict[str, tuple[int, ...]] = {
        f"attention/{part}": shape for part, shape in attention.items()
    }
    layer |= {"attention/output/LayerNorm": (width,), "intermediate/dense": (width, inner)}
    layer |= {"output/dense": (inner, width), "output/LayerNorm": (width,)}
    parts: dict[str, tuple[int, ...]] = {"embeddings/LayerNorm": (width,)}
    for i in range(config.num_hidden_layers):
        parts |= {f"encoder/layer_{i}/{part}": shape for part, shape in layer.items()}
    parts["pooler/dense"] = (width, width)
    shapes: dict[str, tuple[int, ...]] = {
        WORD_EMBEDDINGS: (config.vocab_size, width),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, width),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, width),
    }
    for part, shape in parts.items():
        kinds = ("gamma", "beta") if part.endswith("LayerNorm") else ("kernel", "bias")
        shapes |= {f"bert/{part}/{kinds[0]}": shape, f"bert/{part}/{kinds[1]}": shape[-1:]}
    return shapes


def check_weights(
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, Sequence[int]],
    source: str | os.PathLike,
    model: str,
) -> None:
    """Raise `UserError` unless the arrays are finite and have these shapes."""
    try:
        check_arrays(arrays, shapes, model)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from error
