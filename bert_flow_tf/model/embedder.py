"""An encoder with its calibration: what is embedded, saved and exported."""

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.common.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.common.losses import Losses
from bert_flow_tf.common.records import CalibrationRecord, ModelRecord, Training
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import check_low_dim, pooling_code, reduce_dimension
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.stream import SentenceBatcher
from bert_flow_tf.encoder.tracing import traced_once
from bert_flow_tf.encoder.weights import Pretrained
from bert_flow_tf.model.build import build_calibration, build_encoder, recorded_size
from bert_flow_tf.model.trainable import TrainableModel
from bert_flow_tf.vectors.sentence_model import SentenceModel
from bert_flow_tf.vectors.texts import sentence_list
from glow.calibration import AffineMap, Calibration
from glow.number_types import is_whole_number
from glow.saved import check_exportable
from glow.whitened import Flow, WhitenedFlow

Self = TypeVar("Self", bound="Embedder")


def warn_if_harmful(action: str, flow: CalibrationRecord | None) -> None:
    """Warn if the last verdict about a calibration was "harms"."""
    if flow is not None and flow.verdict is not None and flow.verdict.claim == "harms":
        warn_user(
            f"{action}: found the calibration {flow.method}, which harms by `fit`; use the "
            "encoder as it is"
        )


def record_of_own(calibration: Calibration, width: int | None = None) -> CalibrationRecord:
    """Return the record of a user's calibration, whose training is unknown.

    Raises `ArgumentError` for another object, or another width than the encoder's.
    """
    names = ("event_size", "output_size", "forward", "fixed_forward", "variables_by_path")
    if not all(hasattr(calibration, name) for name in names):
        raise ArgumentError(f"flow: found {calibration!r:.60}, expected a calibration or None")
    if width not in (None, calibration.event_size):
        raise ArgumentError(
            f"flow: found {calibration.event_size} channels, expected the encoder's {width}"
        )
    config = calibration.config if isinstance(calibration, Flow) else None
    method = "whitening" if config is None else "flow"
    if isinstance(calibration, WhitenedFlow):
        method = "whitening+flow"
    training = Training(settings={"method": method})
    return CalibrationRecord(
        config=config, training=training, output_size=recorded_size(calibration)
    )


def _check_averages(low_dim: int, calibration: Calibration | None) -> None:
    """Raise `ArgumentError` for averages of an affine map's channels."""
    if low_dim > 0 and isinstance(calibration, AffineMap):
        raise ArgumentError(
            f"low_dim: found {low_dim} with an affine calibration; averages of its channels mean "
            "nothing, so leave it out"
        )


def current_record(record: CalibrationRecord, calibration: Calibration) -> CalibrationRecord:
    """Return a record with the calibration's present configuration."""
    config = calibration.config if isinstance(calibration, Flow) else None
    return msgspec.structs.replace(record, config=config)


class Embedder(SentenceModel):
    """A tokenizer, an encoder and perhaps a calibration, with their record.

    Args:
      encoder: the encoder, in float32.
      flow: the calibration, or None.
      source: the encoder's files.
      record: description of encoder, pooling, length, flow and training; also an attribute.
      encoder_trained: True if training has changed the encoder's weights since `source`.
      dtype: "float32", or "bfloat16" for the encoder's matrices and their products, which is faster
        on GPUs of compute capability 8.0 or more and on CPUs with AMX. `save` and `export` write
        float32.

    Attributes:
      cast_encoder: the encoder in `dtype`.
      calibration: the flow or affine map, or None.
    """

    history_: Any = None

    def __init__(
        self,
        encoder: SentenceEncoder,
        flow: Calibration | None,
        source: EncoderSource,
        *,
        record: ModelRecord,
        encoder_trained: bool = False,
        dtype: str = DTYPES[0],
    ) -> None:
        # np.dtype("float32") equals its name, but cannot be written as JSON.
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ArgumentError(
                f"dtype: found {dtype!r}, expected {' or '.join(map(repr, DTYPES))}"
            )
        self.source = source
        self.encoder_trained = encoder_trained
        self.dtype = dtype
        self.sentence_embedding_type = record.pooling
        self._max_seq_length = record.max_seq_length
        self.tokenizer = source.tokenizer()
        self.encoder = encoder
        self.cast_encoder = self.encoder.in_bfloat16() if dtype == "bfloat16" else self.encoder
        self.prompts = source.record.prompts
        self.default_prompt_name = source.record.default_prompt_name
        self.similarity_fn_name = source.record.similarity_fn_name
        self._set_calibration(flow, record)

    def _set_calibration(self, calibration: Calibration | None, record: ModelRecord) -> None:
        self.calibration = calibration
        self.record = record
        if not self.is_truncated:
            # A new calibration may have fewer channels than `truncate_dim`.
            self.record = msgspec.structs.replace(record, truncate_dim=None)
        self._make_batchers()

    @property
    def flow(self) -> Calibration | None:
        """The calibration: a flow, or an affine map such as whitening. Settable.

        It maps the embeddings of `encode_pooled`, on which one of your own must be learned. The
        record of one that is set says that its training is unknown.
        """
        return self.calibration

    @flow.setter
    def flow(self, calibration: Calibration | None) -> None:
        learned = None
        if calibration is not None:
            learned = record_of_own(calibration, self.encoder.embedding_size)
            width = calibration.output_size
            if self.low_dim > 0 and width != calibration.event_size:
                raise ArgumentError(
                    f"flow: found one of {width} channels in a model with low_dim={self.low_dim}, "
                    f"expected {calibration.event_size}"
                )
            _check_averages(self.low_dim, calibration)
        record = msgspec.structs.replace(self.record, flow=learned)
        self._set_calibration(calibration, record)
        self.history_ = None

    def trainable(self, *, encoder: bool = False) -> TrainableModel:
        """Return encoder and flow as a `tf_keras.Model`, for your own loop.

        It shares this model's variables, so `encode`, `save` and `export` see what the loop
        changes. The record says that the training is unknown.

        Args:
          encoder: True to train the encoder, too; copies of this model keep the old one.

        Raises:
          UserError: the model has no flow; `model.flow = Glow(…)` sets one.
        """
        calibration = self.require_flow("trainable")
        record = msgspec.structs.replace(self.record, flow=record_of_own(calibration))
        if encoder:
            self.encoder = self.encoder.as_trainable()
            bfloat16 = self.dtype == "bfloat16"
            self.cast_encoder = self.encoder.in_bfloat16() if bfloat16 else self.encoder
            self.encoder_trained = True
            tuned = Training(began_with=record.encoder.fine_tuning)
            described = msgspec.structs.replace(
                record.encoder, fingerprint=None, weights=None, fine_tuning=tuned
            )
            record = msgspec.structs.replace(record, encoder=described)
        self._set_calibration(calibration, record)
        self.history_ = None
        return TrainableModel(
            self.encoder,
            calibration,
            self.tokenizer,
            trains_encoder=encoder,
            max_seq_length=self.max_seq_length,
            reduce=self.reduced,
            prompt=self.default_prompt,
        )

    @property
    def recorded_losses(self) -> Losses | None:
        """The losses to save with the model; None without a `fit`."""
        return None

    def _make_batchers(self) -> None:
        calibrate = self._traced_calibration()
        batcher = functools.partial(
            SentenceBatcher, tokenizer=self.tokenizer, max_seq_length=self.max_seq_length
        )
        # A new calibration needs no new functions of the encoder and the tokenizer.
        self._embedding_batcher = batcher(
            lambda tokens: calibrate(self.cast_encoder.traced_embed(tokens)),
            shape=[self.untruncated_size],
        )
        log_prob = traced_once(
            lambda u: self.require_flow("log_prob").log_prob(u), self._pooled_spec
        )
        self._log_prob_batcher = batcher(
            lambda tokens: log_prob(self.cast_encoder.traced_embed(tokens)), shape=[]
        )

    @property
    def _pooled_spec(self) -> tf.TensorSpec:
        return tf.TensorSpec([None, self.encoder.embedding_size], tf.float32)

    def _traced_calibration(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return `_calibrated`, traced for a calibration; it follows a flow that changes."""
        if self.calibration is None:
            return self._calibrated
        calibrated = traced_once(self._calibrated, self._pooled_spec)
        folded = self.calibration.folded()
        if folded is None:
            return calibrated
        fast = traced_once(lambda u: reduce_dimension(folded(u), self.low_dim), self._pooled_spec)
        is_current = traced_once(folded.is_current)
        # A user may assign the flow's variables after they were folded.
        return lambda u: fast(u) if is_current() else calibrated(u)

    @property
    def max_seq_length(self) -> int:
        """The most word pieces per sentence; longer sentences are cut. Settable."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        largest = self.encoder.max_seq_length or sys.maxsize
        if not is_whole_number(value) or not 3 <= value <= largest:
            raise ArgumentError(
                f"max_seq_length: found {value!r}, expected a whole number from 3 to {largest}"
            )
        value = int(value)
        self._max_seq_length = value
        self.record = msgspec.structs.replace(self.record, max_seq_length=value)
        self._make_batchers()

    @property
    def low_dim(self) -> int:
        """The number of channels after averaging neighbours, if positive. Settable.

        It divides the encoder's channels. Averages of an affine calibration's mean nothing, so
        they are an `ArgumentError`.
        """
        return self.record.low_dim

    @low_dim.setter
    def low_dim(self, value: int) -> None:
        check_low_dim(value, self.encoder.embedding_size)
        _check_averages(value, self.calibration)
        self.record = msgspec.structs.replace(self.record, low_dim=value)
        self._make_batchers()

    @property
    def untruncated_size(self) -> int:
        """The number of channels before `truncate_dim`."""
        if self.low_dim > 0:
            return self.low_dim
        calibration = self.calibration
        return self.encoder.embedding_size if calibration is None else calibration.output_size

    @property
    def embedding_size(self) -> int:
        """The width of the embeddings."""
        return min(self.truncate_dim or self.untruncated_size, self.untruncated_size)

    @property
    def is_truncated(self) -> bool:
        """True if `truncate_dim` leaves channels out."""
        return self.embedding_size < self.untruncated_size

    @property
    def truncate_dim(self) -> int | None:
        """The number of leading channels to keep; None keeps all. Settable.

        Every way to an embedding applies it; `encode`'s argument takes precedence.
        """
        return self.record.truncate_dim

    @truncate_dim.setter
    def truncate_dim(self, value: int | None) -> None:
        self.check_truncate_dim(value)
        kept = None if value is None else int(value)
        self.record = msgspec.structs.replace(self.record, truncate_dim=kept)
        if value is not None and isinstance(self.calibration, Flow):
            warn_user(
                f"truncate_dim: a flow's channels are not ordered, so any {value} score alike; "
                f"whitening-{value} and auto-{value} may score higher or lower: "
                f"bert-flow compare --methods flow,whitening-{value},auto-{value} "
                f"--truncate_dim {value} --pairs FILE"
            )

    def check_truncate_dim(self, value: Any) -> None:
        """Raise `ArgumentError` unless `value` is None or a number of channels."""
        size = self.untruncated_size
        if value is None or (is_whole_number(value) and 1 <= value <= size):
            return
        expected = f"expected None or a whole number from 1 to {size}"
        raise ArgumentError(f"truncate_dim: found {value!r}, {expected}")

    def tokenize(self, sentences: Sequence[str]) -> dict[str, tf.Tensor]:
        """Return a dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 [n, t]."""
        return self.tokenizer(tf.constant(sentence_list(sentences), tf.string), self.max_seq_length)

    def __copy__(self: Self) -> Self:
        """Return another model that shares encoder and flow."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        # The old batchers would keep using the old model's flow.
        copied._make_batchers()
        return copied

    def __reduce__(self) -> tuple:
        """Return the parts that `pickle` and `copy.deepcopy` need, with weights as arrays."""
        pretrained = self.source.pretrained
        if not isinstance(pretrained, Pretrained):
            raise TypeError(
                f"{self.source.bert_hub}: found a SavedModel that is no BERT, which cannot be "
                "pickled"
            )
        if self.calibration is not None:
            check_exportable(self.calibration)
        weights = {name: np.array(value) for name, value in pretrained.weights.items()}
        source = dataclasses.replace(
            self.source, pretrained=dataclasses.replace(pretrained, weights=weights)
        )
        encoder = self.encoder.variables_by_name if self.encoder_trained else {}
        flow = {} if self.calibration is None else self.calibration.variables_by_path
        arrays = [
            {name: variable.numpy() for name, variable in one.items()} for one in (encoder, flow)
        ]
        names = ("_prompts", "default_prompt_name", "_similarity_fn_name", "history_")
        kept = {name: self.__dict__[name] for name in names if name in self.__dict__}
        return _unpickled, (
            type(self),
            source,
            self.record,
            arrays,
            self.encoder_trained,
            self.dtype,
            kept,
        )

    @property
    def fingerprint(self) -> str:
        """A SHA-256 of all that embeddings depend on, except their normalization."""
        cut = self.embedding_size if self.is_truncated else None
        return self._fingerprint(self.calibration, self.low_dim, cut)

    def _fingerprint(self, flow: Calibration | None, low_dim: int, cut: int | None = None) -> str:
        description: list[Any] = [
            self.source.fingerprint,
            self.sentence_embedding_type,
            self.max_seq_length,
            low_dim,
            self.dtype,
            pooling_code(self.sentence_embedding_type),
        ]
        config = None if flow is None or self.record.flow is None else self.record.flow.config
        description.append(config and config.recipe)
        if prompt := self._prompt():
            description.append(prompt)
        if cut is not None:
            description.append(cut)
        digest = hashlib.sha256(msgspec.json.encode(description))
        encoder = self.encoder.variables_by_name if self.encoder_trained else {}
        for variables in (encoder, {} if flow is None else flow.variables_by_path):
            for name, array in sorted(
                (name, variable.numpy()) for name, variable in variables.items()
            ):
                digest.update(
                    f"{name} {array.dtype.name} {array.shape}\n".encode() + array.tobytes()
                )
        return digest.hexdigest()

    def embed_tokens(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return float32 [n, untruncated_size] of the tokens from `Tokenizer.pack`.

        `finished` makes embeddings of it.
        """
        return self._calibrated(self.cast_encoder.traced_embed(tokens))

    def _calibrated(self, u: tf.Tensor) -> tf.Tensor:
        z = u if self.calibration is None else self.calibration.forward(u)
        return reduce_dimension(z, self.low_dim)

    def embed(self, sentences: tf.Tensor) -> tf.Tensor:
        """Return `encode`'s embeddings of a string tensor [n], in a graph.

        Like `encode`, it puts the default prompt before the sentences and applies an encoder's
        `Normalize`.
        """
        prompt = self._prompt()
        texts = tf.strings.join([prompt, sentences]) if prompt else sentences
        embeddings = self.embed_tokens(self.tokenizer(texts, self.max_seq_length))
        return tf.ensure_shape(self.finished(embeddings), [None, self.embedding_size])

    @property
    def normalizes(self) -> bool:
        """True if embeddings have norm 1, unless a caller says otherwise."""
        return self.keeps_normalize and not self.is_truncated

    @property
    def cuts_after_norm(self) -> bool:
        """True if `truncate_dim` cuts channels that an encoder scaled to norm 1."""
        return self.keeps_normalize and self.is_truncated

    @property
    def keeps_normalize(self) -> bool:
        """True for an encoder's own pooling and module `Normalize`, without a flow."""
        return self.calibration is None and self.encoder_normalizes

    @property
    def encoder_normalizes(self) -> bool:
        """True for an encoder's own pooling and module `Normalize`."""
        record = self.source.record
        return record.normalize and record.pooling == self.sentence_embedding_type

    def finished(
        self,
        embeddings: np.ndarray | tf.Tensor,
        normalize: bool | None = None,
        truncate_dim: int | None = None,
    ) -> np.ndarray | tf.Tensor:
        """Truncate and scale the embeddings [n, untruncated_size] of `embed_tokens`.

        Every way to an embedding passes here: `encode`, `encode_blocks`, `embed` and exports. As in
        sentence-transformers, an encoder's own `Normalize` comes before the truncation, and the
        caller's normalization after it.

        Args:
          normalize: True scales to norm 1, False leaves the norms as they are, and None does as
            `keeps_normalize` says.
          truncate_dim: None for the model's own.
        """
        if self.keeps_normalize and normalize is None:
            embeddings = _of_norm_1(embeddings)
        size = truncate_dim or self.embedding_size
        if size < self.untruncated_size:
            embeddings = embeddings[:, :size]
        return _of_norm_1(embeddings) if normalize else embeddings

    def encode_blocks(
        self,
        sentences: Iterable[str],
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
        prompt: str | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield lists of sentences and their embeddings, float32 [k, embedding_size].

        Memory holds one list at a time. Where `normalize_embeddings` or `prompt` is None, the
        encoder's own setting holds; False leaves the norms as they are. Raises `UserError` as
        `encode` does.
        """
        prompt = self._prompt() if prompt is None else prompt
        if prompt:
            sentences = (prompt + one if isinstance(one, str) else one for one in sentences)
        for part, embeddings in self._embedding_batcher.encode_blocks(
            sentences, batch_size=batch_size, show_progress_bar=show_progress_bar
        ):
            found = np.asarray(self.finished(embeddings, normalize_embeddings))
            yield [one[len(prompt) :] for one in part], found

    def encode_pooled(
        self, sentences: Sequence[str], dropout_seed: int | None = None, label: str = "encode"
    ) -> np.ndarray:
        """Return embeddings before the flow, float32 [n, D].

        Unlike those of `encode` without a flow, they are not scaled by an encoder's `Normalize`.
        `dropout_seed` adds dropout; `label` names the progress bar.
        """
        texts = [self._prompt() + sentence for sentence in sentences]
        with stream.CutTexts(self.max_seq_length, self.tokenizer.unknown_id) as cuts:
            pieces = stream.tokenize(self.tokenizer, texts, self.max_seq_length, cuts)
        if dropout_seed is None:
            return stream.embed(
                self.cast_encoder, self.tokenizer, pieces, self.max_seq_length, label=label
            )
        batcher = stream.dropout_batcher(
            self.cast_encoder, self.tokenizer, self.max_seq_length, seed=dropout_seed
        )
        return batcher.encode_pieces(
            pieces, occurrences=np.arange(len(sentences)), show_progress_bar=None
        )

    def only_unknown(self, texts: Sequence[str]) -> np.ndarray:
        """Return True for each text [n] that holds only unknown word pieces."""
        pieces = stream.tokenize(self.tokenizer, texts, self.max_seq_length)
        return stream.only_unknown(pieces, self.tokenizer.unknown_id).numpy()

    def reduce(self, z: np.ndarray) -> np.ndarray:
        """Average and truncate the channels of [n, D], see `reduced`."""
        return self.reduced(tf.convert_to_tensor(z)).numpy()

    def reduced(self, z: tf.Tensor) -> tf.Tensor:
        """Average the channels of [n, D] as `low_dim` says, then truncate them."""
        return reduce_dimension(z, self.low_dim)[:, : self.truncate_dim]

    def require_flow(self, what: str) -> Flow:
        """Return the flow; raise `UserError` if there is none with a density."""
        if not isinstance(self.calibration, Flow):
            learned = self.record.flow
            found = "model without a flow" if learned is None else learned.method
            raise UserError(f"{what}: found a {found}, expected a flow (fit() learns it)")
        return self.calibration

    def after_flow(self, u: np.ndarray) -> np.ndarray:
        """Calibrate and reduce `encode_pooled`'s [n, D]; return [n, embedding_size]."""
        if self.calibration is None:
            raise UserError("after_flow: found a model without a calibration, expected one")
        return self.reduce(self.calibration.forward(u))


def _of_norm_1(embeddings: np.ndarray | tf.Tensor) -> np.ndarray | tf.Tensor:
    found = tf.nn.l2_normalize(embeddings, axis=-1)
    return found.numpy() if isinstance(embeddings, np.ndarray) else found


def _unpickled(
    kind: Any,
    source: EncoderSource,
    record: ModelRecord,
    arrays: Sequence[dict[str, np.ndarray]],
    encoder_trained: bool,
    dtype: str,
    kept: dict[str, Any],
) -> Any:
    """Return the model of `Embedder.__reduce__`."""
    encoder = build_encoder(source, record)
    calibration = build_calibration(record, encoder.embedding_size)
    variables = (
        encoder.variables_by_name,
        {} if calibration is None else calibration.variables_by_path,
    )
    for by_name, values in zip(variables, arrays, strict=True):
        for name, value in values.items():
            by_name[name].assign(value)
    made = kind(
        encoder,
        calibration,
        source,
        record=record,
        encoder_trained=encoder_trained,
        dtype=dtype,
    )
    made.__dict__.update(kept)
    return made
