"""A SavedModel of tokenizer, encoder, pooling and flow."""

import functools
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.version import DESCRIPTION_FILE
from bert_flow_tf.encoder.similarities import cosine_similarity
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, TOKEN_SPECS, write_vocabulary
from bert_flow_tf.export.export import quiet_tensorflow, text_batches
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.runtime.description import Description


def write_savedmodel(
    model: Embedder, description: Description, folder: pathlib.Path, texts: Sequence[str]
) -> np.ndarray:
    """Write a version, load it again, and return its embeddings of texts.

    Raises:
      UserError: it cannot be loaded again.
    """
    module = ServedBertFlow(model, description)
    signatures = {
        "serving_default": module.embed_sentences,
        "similarity": module.similarity,
        "tokens": module.embed_tokens,
        "pooled": module.pool_sentences,
    }
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with quiet_tensorflow(), tempfile.TemporaryDirectory() as scratch:
        # Clients that send ids need the vocabulary.
        vocabulary = pathlib.Path(scratch, "vocab.txt")
        write_vocabulary(vocabulary, model.source.pretrained.vocab)
        module.vocabulary = tf.saved_model.Asset(str(vocabulary))
        tf.saved_model.save(module, str(folder), signatures=signatures, options=options)
    (folder / "assets.extra").mkdir()
    write_json(folder / "assets.extra" / DESCRIPTION_FILE, description)
    try:
        signatures = tf.saved_model.load(str(folder)).signatures
        embed = signatures["serving_default"]
        batches = [embed(sentences=tf.constant(some)) for some in text_batches(texts)]
    except tf.errors.OpError as error:
        reason = " ".join(error.message.split())
        raise UserError(
            f"the SavedModel cannot be loaded again ({reason}); nothing was written"
        ) from error
    write_warmup_requests(folder, folder.parent.name, signatures, description.max_seq_length)
    return np.concatenate([batch["embedding"].numpy() for batch in batches])


def write_warmup_requests(
    version_folder: pathlib.Path,
    model_name: str,
    signatures: Mapping[str, Any],
    max_seq_length: int,
) -> None:
    """Write the requests that TensorFlow Serving runs before it serves.

    Each signature gets a short row, a row of `max_seq_length` pieces, and 32 of both kinds. The
    file is a TFRecord of `PredictionLog`, see
    https://www.tensorflow.org/tfx/serving/saved_model_warmup; equal signatures give equal bytes.
    """
    short = min(4, max_seq_length)
    sizes = ([short], [max_seq_length], [short, max_seq_length] * 16)
    with tf.io.TFRecordWriter(
        str(version_folder / "assets.extra" / "tf_serving_warmup_requests")
    ) as writer:
        for name, lengths in itertools.product(sorted(signatures), sizes):
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = model_name
            request.model_spec.signature_name = name
            for key, spec in signatures[name].structured_input_signature[1].items():
                rows: Any = [" ".join(["word"] * k) for k in lengths]
                if spec.dtype != tf.string:
                    # The id 0, [PAD], is in every vocabulary; where the mask is 1, it is embedded
                    # like any other id.
                    is_word = np.arange(max(lengths)) < np.array(lengths)[:, np.newaxis]
                    rows = is_word.astype(np.int32) * (key == "input_mask")
                request.inputs[key].CopyFrom(tf.make_tensor_proto(rows, dtype=spec.dtype))
            # Without this option, a protobuf map has no fixed order.
            writer.write(log.SerializeToString(deterministic=True))


def _signature(*specs: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a `tf.function` of tensors."""
    # No function here has a Python condition or loop over tensors.
    return functools.partial(tf.function, input_signature=specs, autograph=False)


class ServedBertFlow(tf.Module):
    """The functions that become the signatures of a SavedModel.

    Each accepts any number of rows, even 0, and pads to the longest sentence of the batch. An
    invalid input (rank, length, an id outside the vocabulary) gives an InvalidArgument error that
    names the input. Bytes that are not UTF-8 are dropped, as in the original; an empty sentence is
    [CLS] and [SEP] alone.

    The flow is folded if possible; otherwise it would take a tenth of the encoder's time for a
    single sentence. Folding changes embeddings only by rounding.
    """

    def __init__(self, model: Embedder, description: Description) -> None:
        super().__init__(name="bert_flow")
        self.tokenizer = model.tokenizer
        network = model.encoder.network
        chain = model.chain
        latents = chain.fixed_forward()
        # A folded flow has constants; variables of other forms must be saved.
        self.map_variables = list(chain.variables_by_path.values())
        # A tf.function lets the signatures share its constants.
        spec = tf.TensorSpec([None, chain.event_size], tf.float32)
        self._latents = _signature(spec)(lambda u: tf.identity(latents(u)))
        pooled = network.in_bfloat16() if description.dtype == "bfloat16" else network
        # Keras would also save a layer's functions with dropout, so the module holds only its
        # variables.
        self.encoder_variables = list(pooled.variables_by_name.values())
        # A tf.function lets the signatures share its graph.
        self._pool = _signature(TOKEN_SPECS)(pooled.embed)
        self._finish = functools.partial(model.tail, normalize=description.normalized or None)
        self._description = description
        self._width = network.embedding_size
        self._max_positions = network.max_seq_length
        self._num_types = network.num_types

    @_signature(tf.TensorSpec([None], tf.string, name="sentences"))
    def embed_sentences(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `{"embedding": float32 [n, D]}` of strings [n] in UTF-8."""
        return {"embedding": self._embed(self._pool_texts(_of_rank(1, sentences, "sentences")))}

    @_signature(*(tf.TensorSpec([None], tf.string, name=f"sentence_{side}") for side in "ab"))
    def similarity(self, sentence_a: tf.Tensor, sentence_b: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `{"cosine": float32 [n]}` of pairs of strings [n]."""
        sentence_a = _of_rank(1, sentence_a, "sentence_a")
        sentence_b = _of_rank(1, sentence_b, "sentence_b")
        n, m = tf.size(sentence_a), tf.size(sentence_b)
        check = tf.debugging.Assert(
            tf.equal(n, m),
            ["sentence_b: found", m, "sentences, expected the number in sentence_a:", n],
        )
        with tf.control_dependencies([check]):
            both = self._embed(self._pool_texts(tf.concat([sentence_a, sentence_b], axis=0)))
        return {"cosine": cosine_similarity(both[:n], both[n:])}

    @_signature(*(tf.TensorSpec([None, None], tf.int32, name=name) for name in TOKEN_INPUTS))
    def embed_tokens(
        self, input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return `{"embedding": float32 [n, D]}` of token ids, int32 [n, t]."""
        tokens = dict(zip(TOKEN_INPUTS, (input_word_ids, input_mask, input_type_ids), strict=True))
        tokens = {name: _of_rank(2, value, name) for name, value in tokens.items()}
        with tf.control_dependencies(self._token_checks(tokens)):
            tokens = {name: tf.identity(value) for name, value in tokens.items()}
        return {
            "embedding": self._embed(
                self._unless_empty(tf.shape(input_mask)[0], lambda: self._pool(tokens))
            )
        }

    @_signature(tf.TensorSpec([None], tf.string, name="sentences"))
    def pool_sentences(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `{"embedding": float32 [n, D]}` before the flow."""
        return {"embedding": self._pool_texts(_of_rank(1, sentences, "sentences"))}

    @_signature(tf.TensorSpec([None], tf.string, name="sentences"))
    def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
        """Return embeddings [n, D] of strings [n], as `hub.KerasLayer` expects."""
        return self.embed_sentences(sentences)["embedding"]

    def _pool_texts(self, sentences: tf.Tensor) -> tf.Tensor:
        length = self._description.max_seq_length
        return self._unless_empty(
            tf.size(sentences), lambda: self._pool(self.tokenizer(sentences, length))
        )

    def _unless_empty(self, n: tf.Tensor, pool: Callable[[], tf.Tensor]) -> tf.Tensor:
        # An encoder cannot run on a batch without rows.
        return tf.cond(n > 0, pool, lambda: tf.zeros([0, self._width]))

    def _token_checks(self, tokens: dict[str, tf.Tensor]) -> list[tf.Operation]:
        shape = tf.shape(tokens["input_word_ids"])
        max_positions = self._max_positions or tf.int32.max
        num_types = self._num_types or tf.int32.max
        ends = {
            "input_word_ids": self.tokenizer.vocab_size,
            "input_mask": 2,
            "input_type_ids": num_types,
        }
        has_words = tf.reduce_all(tf.reduce_any(tokens["input_mask"] > 0, axis=1))
        # Each check is a condition and the message of its failure.
        checks = [
            (has_words, ["input_mask: found a row of zeros, expected a 1 for every id"]),
            (
                shape[1] <= max_positions,
                ["input_word_ids: found", shape[1], f"positions, expected at most {max_positions}"],
            ),
        ]
        for name, end in ends.items():
            found = tf.shape(tokens[name])
            least = tf.reduce_min(tokens[name])
            most = tf.reduce_max(tokens[name])
            message = [f"{name}: found shape", found, "expected that of input_word_ids:", shape]
            checks.append((tf.reduce_all(tf.equal(found, shape)), message))
            # An empty tensor passes, because its minimum is the largest int32.
            fits = (least >= 0) & (most < end)
            checks.append((fits, [f"{name}: found", least, "to", most, f"expected 0 to {end - 1}"]))
        return [tf.debugging.Assert(condition, message) for condition, message in checks]

    def _embed(self, pooled: tf.Tensor) -> tf.Tensor:
        return self._finish(self._latents(pooled))


def _of_rank(rank: int, value: tf.Tensor, name: str) -> tf.Tensor:
    # A server's session does not check its inputs against the signature's shapes.
    return tf.ensure_shape(value, [None] * rank, name=name)
