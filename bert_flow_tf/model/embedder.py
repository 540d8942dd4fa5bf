"""A text encoder, maps and a tail as one value."""

import copy
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.common.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.common.records import CalibrationRecord, EncoderRecord, ModelRecord, Training
from bert_flow_tf.encoder.source import EncoderSource, encoder_record
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.model.base import CalibratedEncoder
from bert_flow_tf.model.build import own_code
from bert_flow_tf.vectors.sentence_model import Sentences
from bert_flow_tf.vectors.tail import Tail
from bert_flow_tf.vectors.texts import parts
from glow.chain import Chain
from glow.flow import Glow
from glow.maps import AffineMap, VectorMap, in_blocks
from glow.number_types import is_whole_number
from glow.tracing import check_process

if TYPE_CHECKING:
    from bert_flow_tf.calibration.history import History
    from bert_flow_tf.model.trainable import TrainableModel


def warn_if_harmful(action: str, flow: CalibrationRecord | None) -> None:
    """Warn if the last verdict about a calibration was "harms"."""
    if flow is not None and flow.verdict is not None and flow.verdict.claim == "harms":
        warn_user(
            f"{action}: found the calibration {flow.method}, which harms by `fit`; use the "
            "encoder as it is"
        )


def checked_map(one: Any, width: int | None) -> VectorMap:
    """Return a user's map; raise `ArgumentError` for another object or width."""
    names = ("event_size", "output_size", "forward", "fixed_forward", "variables_by_path", "kind")
    if not all(hasattr(one, name) for name in names):
        raise ArgumentError(f"flow: found {one!r:.60}, expected a map of vectors or None")
    if width not in (None, one.event_size):
        raise ArgumentError(
            f"flow: found {one.event_size} channels, expected the encoder's {width}"
        )
    for variable in one.variables_by_path.values():
        if variable.dtype.is_floating and variable.dtype != tf.float32:
            raise ArgumentError(f"flow: found variables of {variable.dtype.name}, expected float32")
    return one


def record_of_own(maps: Sequence[VectorMap]) -> CalibrationRecord | None:
    """Return a record of a user's maps; their training is unknown."""
    if not maps:
        return None
    method = "+".join(one.kind for one in maps)
    return CalibrationRecord(config=config_of(maps), training=Training(settings={"method": method}))


def flat(one: VectorMap) -> list[VectorMap]:
    """Return the maps of a `Chain`, or a list of another map."""
    return list(one.maps) if isinstance(one, Chain) else [one]


def config_of(maps: Sequence[VectorMap]) -> Any:
    """Return the configuration of the flow among maps; None without a flow."""
    return next((one.config for one in maps if isinstance(one, Glow)), None)


class Embedder(CalibratedEncoder):
    """A text encoder, maps and a tail, with their record.

    Args:
      encoder: the tokenizer and the encoder, with its pooling and length.
      maps: of the encoder's vectors, in order; none for an encoder as it is.
      origin: the record of the encoder; by default, of its files.
      learned: the record of the maps' training.
      checkpoint: of the run, if the model is from one.
      low_dim, truncate_dim: see `vectors.tail.Tail`.
      prompts, default_prompt_name, similarity_fn_name: by default the encoder's.

    Raises:
      ArgumentError: an argument is invalid.
    """

    encoder: TextEncoder
    chain: Chain

    def __init__(
        self,
        encoder: TextEncoder,
        maps: Sequence[VectorMap] = (),
        *,
        origin: EncoderRecord | None = None,
        learned: CalibrationRecord | None = None,
        checkpoint: str | None = None,
        low_dim: int = -1,
        truncate_dim: int | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        similarity_fn_name: str | None = None,
        history: "History | None" = None,
    ) -> None:
        self.encoder = encoder
        self._origin = origin
        self.checkpoint = checkpoint
        own = encoder.source.record
        if prompts is None:
            prompts = own.prompts
            default_prompt_name = own.default_prompt_name
        self.set_prompts(prompts, default_prompt_name)
        self.similarity_fn_name = similarity_fn_name or own.similarity_fn_name
        self._set(maps, learned, low_dim=low_dim, truncate_dim=truncate_dim)
        self.history_ = history

    def _set(
        self,
        maps: Sequence[VectorMap],
        learned: CalibrationRecord | None,
        *,
        low_dim: int,
        truncate_dim: int | None,
    ) -> None:
        """Set maps and tail, which depend on each other."""
        chain = Chain(maps, self.encoder.embedding_size)
        own = self.encoder.source.record
        if low_dim > 0 and any(isinstance(one, AffineMap) for one in maps):
            raise ArgumentError(
                f"low_dim: found {low_dim} with an affine calibration; averages of its channels "
                "mean nothing, so leave it out"
            )
        self.tail = Tail(
            width=chain.output_size,
            low_dim=low_dim,
            # A map is learned on what comes before an encoder's own `Normalize`.
            normalizes=not maps and own.normalize and own.pooling == self.encoder.pooling,
            truncate_dim=truncate_dim,
        )
        self.chain = chain
        self.learned = learned
        self.history_ = None

    def _set_maps(self, maps: Sequence[VectorMap], learned: CalibrationRecord | None) -> None:
        """Set other maps; a `truncate_dim` above their channels is dropped."""
        width = maps[-1].output_size if maps else self.encoder.embedding_size
        size = self.low_dim if self.low_dim > 0 else width
        self._set(
            maps,
            learned,
            low_dim=self.low_dim,
            truncate_dim=self.truncation_of(size),
        )

    @property
    def maps(self) -> list[VectorMap]:
        """The maps of the encoder's vectors, in order. Settable.

        They are learned on what `encode_pooled` returns. The record of maps that are set says that
        their training is unknown.
        """
        return list(self.chain.maps)

    @maps.setter
    def maps(self, maps: Sequence[VectorMap]) -> None:
        width = self.encoder.embedding_size
        for one in maps:
            width = checked_map(one, width).output_size
        self._set_maps(maps, record_of_own(maps))

    @property
    def flow(self) -> Any:
        """The maps as one: None, the only map, or their `Chain`. Settable."""
        maps = self.chain.maps
        return None if not maps else maps[0] if len(maps) == 1 else self.chain

    @flow.setter
    def flow(self, flow: VectorMap | None) -> None:
        self.maps = [] if flow is None else flat(flow)

    @property
    def origin(self) -> EncoderRecord:
        """The record of the encoder."""
        # Its digest reads all weights, which `encode` does not need.
        if self._origin is None:
            self._origin = encoder_record(self.source)
        return self._origin

    @property
    def record(self) -> ModelRecord:
        """The description of encoder, maps and tail, for results and reports."""
        encoder = self.encoder
        learned = self.learned
        if learned is not None:
            learned = msgspec.structs.replace(learned, config=config_of(self.chain.maps))
        return ModelRecord(
            encoder=self.origin,
            pooling=encoder.pooling,
            max_seq_length=encoder.max_seq_length,
            low_dim=self.low_dim,
            truncate_dim=self.truncate_dim,
            flow=learned,
            checkpoint=self.checkpoint,
            code=self._code(learned),
        )

    def described(self) -> tuple[ModelRecord, str]:
        from bert_flow_tf.tasks.scores import model_in_words

        record = msgspec.structs.replace(self.record, flow=None)
        return record, model_in_words(record)

    @property
    def model_record(self) -> ModelRecord:
        return self.record

    def _code(self, learned: CalibrationRecord | None) -> dict[str, str]:
        """Return the digests of one's own parts that have one."""
        try:
            return own_code(self.encoder.pooling, learned.config if learned else None)
        except ArgumentError:
            return {}

    def state(self) -> dict[str, Any]:
        """Return all that makes this model, as the arguments of its class.

        `save`, copies and pickles use it.
        """
        return {
            # Another model's length is its own; both share the weights.
            "encoder": copy.copy(self.encoder),
            "maps": self.maps,
            "origin": self._origin,
            "learned": self.learned,
            "checkpoint": self.checkpoint,
            "low_dim": self.low_dim,
            "truncate_dim": self.truncate_dim,
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt_name,
            "similarity_fn_name": self.similarity_fn_name,
            "history": self.history_,
        }

    @property
    def source(self) -> EncoderSource:
        """The encoder's files."""
        return self.encoder.source

    @property
    def tokenizer(self) -> Tokenizer:
        return self.encoder.tokenizer

    @property
    def dtype(self) -> str:
        """The type of the encoder's matrices, "float32" or "bfloat16"."""
        return self.encoder.dtype

    @property
    def sentence_embedding_type(self) -> str:
        """The pooling's name."""
        return self.encoder.pooling

    @property
    def low_dim(self) -> int:
        """The number of channels after averaging neighbours, if positive. Settable.

        It divides the encoder's channels. Averages of an affine map's mean nothing, so they are an
        `ArgumentError`.
        """
        return self.tail.low_dim

    @low_dim.setter
    def low_dim(self, value: int) -> None:
        history = self.history_
        self._set(self.maps, self.learned, low_dim=value, truncate_dim=self.truncate_dim)
        self.history_ = history

    def warn_of_truncation(self, size: int | None) -> None:
        if size is not None and self.chain.flow is not None:
            warn_user(
                f"truncate_dim: a flow's channels are not ordered, so any {size} score alike; "
                f"whitening-{size} and auto-{size} may score higher or lower: "
                f"bert-flow compare --methods flow,whitening-{size},auto-{size} "
                f"--truncate_dim {size} --pairs FILE"
            )

    def encode_blocks(
        self,
        sentences: Iterable[str],
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
        prompt: str | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        text = self.default_prompt if prompt is None else prompt
        if text:
            sentences = (text + one for part in parts(sentences) for one in part)
        for part, pooled in self.encoder.encode_blocks(
            sentences, batch_size=batch_size, show_progress_bar=show_progress_bar
        ):
            found = self.tail(self.chain.transform(pooled), normalize_embeddings)
            yield [one[len(text) :] for one in part], found

    def embed(self, sentences: tf.Tensor) -> tf.Tensor:
        """Return `encode`'s embeddings of a string tensor [n], in a graph.

        Like `encode`, it puts the default prompt before the sentences.
        """
        prompt = self.default_prompt
        texts = tf.strings.join([prompt, sentences]) if prompt else sentences
        embeddings = self.tail(self.chain.forward(self.encoder.embed(texts)))
        return tf.ensure_shape(embeddings, [None, self.embedding_size])

    def log_prob(self, sentences: Sentences, **options: Any) -> np.ndarray:
        """Return log-densities in nats, float32 [n], or a number for one string.

        `options` are those of `encode_pooled`.
        """
        return self._of_density("log_prob", sentences, options)

    def bits_per_dim(self, sentences: Sentences, **options: Any) -> np.ndarray:
        """Return `log_prob` as a loss, float32 [n], in bits per dimension."""
        return self._of_density("bits_per_dim", sentences, options)

    def _of_density(self, name: str, sentences: Sentences, options: dict[str, Any]) -> np.ndarray:
        function = getattr(self.require_flow(name), name)
        u = self.encode_pooled([sentences] if isinstance(sentences, str) else sentences, **options)
        found = in_blocks(function, u)
        return found[0] if isinstance(sentences, str) else found

    def inverse(self, z: Any) -> np.ndarray:
        """Return the embeddings before the flow, float32 [n, D] or [D]."""
        chain = self.require_flow("inverse")
        if self.low_dim > 0:
            raise UserError(
                f"inverse: found low_dim {self.low_dim}, which averages latents, expected none"
            )
        z = np.asarray(z, np.float32)
        if z.ndim not in (1, 2) or z.shape[-1] != chain.event_size:
            raise UserError(
                f"inverse: found an array of shape {list(z.shape)}, expected "
                f"[n, {chain.event_size}]"
            )
        return chain.inverse(z).numpy()

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Draw embeddings before the flow, float32 [n, D]; `seed` determines them."""
        chain = self.require_flow("sample")
        if not is_whole_number(n) or n < 0:
            raise ArgumentError(f"n: found {n!r}, expected a whole number of 0 or more")
        if not is_whole_number(seed) or not 0 <= seed < 2**31:
            raise ArgumentError(
                f"seed: found {seed!r}, expected a whole number from 0 to 2**31 - 1"
            )
        return chain.sample(int(n), seed).numpy()

    def require_flow(self, what: str) -> Chain:
        """Return the maps; raise `UserError` if they have no density."""
        check_process()
        if not self.chain.has_density:
            learned = self.learned
            found = "model without a flow" if learned is None else learned.method
            raise UserError(f"{what}: found a {found}, expected a flow (fit() learns it)")
        return self.chain

    def trainable(self, *, encoder: bool = False) -> "TrainableModel":
        """Return encoder and flow as a `tf_keras.Model`, for your own loop.

        It shares this model's variables, so `encode`, `save` and `export` see what the loop
        changes. The record says that the training is unknown.

        Args:
          encoder: True to train the encoder, too; copies of this model keep the old one.

        Raises:
          UserError: the model has no flow; `model.flow = Glow(…)` sets one.
          ArgumentError: an encoder in bfloat16 is to be trained.
        """
        from bert_flow_tf.model.trainable import TrainableModel

        chain = self.require_flow("trainable")
        if encoder:
            self.encoder.make_trainable()
            tuned = Training(began_with=self.origin.fine_tuning)
            self._origin = msgspec.structs.replace(
                self.origin, fingerprint=None, weights=None, fine_tuning=tuned
            )
        self._set_maps(self.maps, record_of_own(self.maps))
        return TrainableModel(
            self.encoder.network,
            chain,
            self.tokenizer,
            trains_encoder=encoder,
            max_seq_length=self.max_seq_length,
            reduce=functools.partial(self.tail, normalize=False),
            prompt=self.default_prompt,
        )
