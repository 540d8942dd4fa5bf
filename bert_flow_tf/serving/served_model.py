"""What an export holds: tokenizer, encoder, flow and pooling as four signatures that any TensorFlow can run."""

from typing import Any

import tensorflow as tf

from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, vocabulary_asset
from bert_flow_tf.model.embedding_model import EmbeddingModel
from bert_flow_tf.model.siamese import cosine_similarity, reduce_dimension
from glow.flow import Glow
from glow.folded import FoldedFlow, can_fold


class ServedBertFlow(tf.Module):
    """The functions that become the signatures of a SavedModel, see `signatures`.

    Every one takes any number of rows, none included, and pads to the longest sentence of the batch. Whatever does not
    fit a signature (rank, length of one input against another's, an id outside the vocabulary) is an InvalidArgument
    error that names the input. Bytes that are not UTF-8 are dropped, as in the original; an empty sentence is one of no
    word pieces.

    The flow is there as a `FoldedFlow`, where its kind allows: as it was learned, it takes a tenth of the encoder's
    time for a batch of one sentence. The embeddings differ by the rounding of float32.

    Args:
      bert_flow: `api.BertFlow`.
      normalize, low_dim, max_seq_length: as `export.export`'s.
      bfloat16: whether the encoder multiplies matrices, and keeps them, in bfloat16.
    """

    def __init__(
        self, bert_flow: EmbeddingModel, *, normalize: bool, low_dim: int, max_seq_length: int, bfloat16: bool = False
    ) -> None:
        super().__init__(name="bert_flow")
        self.vocabulary = tf.saved_model.Asset(str(vocabulary_asset(bert_flow.source.preprocess_dir)))
        self.tokenizer = bert_flow.tokenizer
        encoder = bert_flow.encoder
        self._use_flow(bert_flow.flow)
        pooled = encoder.in_bfloat16() if bfloat16 else encoder
        # The variables and not the layer: Keras would save further functions, with dropout, beside those served.
        self.encoder_variables = pooled.graph_variables
        self._pool = pooled.embed
        self._normalize = normalize
        self._low_dim = low_dim
        self._max_seq_length = max_seq_length
        self._most_positions = encoder.max_seq_length
        self._num_types = encoder.num_types

    def _use_flow(self, flow: Glow | None) -> None:
        if flow is not None and can_fold(flow):
            # One function, so that the signatures share its constants.
            u = tf.TensorSpec([None, flow.event_size], flow.dtype)
            self._latents = tf.function(FoldedFlow(flow), input_signature=[u])
        elif flow is not None:
            self.flow_variables = list(flow.variables)
            self._latents = flow.forward
        else:
            self._latents = tf.identity

    def signatures(self) -> dict[str, Any]:
        """dict of name -> function, as `tf.saved_model.save` takes it."""
        return {
            "serving_default": self.embed_sentences,
            "similarity": self.similarity,
            "tokens": self.embed_tokens,
            "pooled": self.pool_sentences,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def embed_sentences(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        """`{"embedding": float32 [n, D]}` of `sentences`, string [n] in UTF-8."""
        sentences = _of_rank(1, sentences, "sentences")
        return {"embedding": self._embed(self._tokenize(sentences))[: tf.size(sentences)]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name=f"sentence_{side}") for side in "ab"])
    def similarity(self, sentence_a: tf.Tensor, sentence_b: tf.Tensor) -> dict[str, tf.Tensor]:
        """`{"cosine": float32 [n]}` of each pair of `sentence_a` and `sentence_b`, string [n]."""
        sentence_a, sentence_b = _of_rank(1, sentence_a, "sentence_a"), _of_rank(1, sentence_b, "sentence_b")
        n, m = tf.size(sentence_a), tf.size(sentence_b)
        check = tf.debugging.Assert(
            tf.equal(n, m), ["sentence_b: found", m, "sentences, expected the number in sentence_a:", n]
        )
        with tf.control_dependencies([check]):
            sentence_a, sentence_b = tf.identity(sentence_a), tf.identity(sentence_b)
        both = self._embed(self._tokenize(tf.concat([sentence_a, sentence_b], axis=0)))
        return {"cosine": cosine_similarity(both[:n], both[n : 2 * n])}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name=name) for name in TOKEN_INPUTS])
    def embed_tokens(
        self, input_word_ids: tf.Tensor, input_mask: tf.Tensor, input_type_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """`{"embedding": float32 [n, D]}` of an encoder's inputs, int32 [n, t], such as the preprocess model's."""
        tokens = dict(zip(TOKEN_INPUTS, (input_word_ids, input_mask, input_type_ids), strict=True))
        tokens = {name: _of_rank(2, value, name) for name, value in tokens.items()}
        with tf.control_dependencies(self._token_checks(tokens)):
            tokens = {name: tf.identity(value) for name, value in tokens.items()}
        return {"embedding": self._embed(self._pad_empty_batch(tokens))[: tf.shape(input_word_ids)[0]]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def pool_sentences(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        """`{"embedding": float32 [n, D]}` of `sentences`, string [n], before the flow: what it was learned on."""
        sentences = _of_rank(1, sentences, "sentences")
        return {"embedding": self._pool(self._tokenize(sentences))[: tf.size(sentences)]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
        """Embeddings, float32 [n, D], of `sentences`, string [n]: what makes a `hub.KerasLayer` of an export."""
        return self.embed_sentences(sentences)["embedding"]

    def _tokenize(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        """Tokens of the sentences; of an empty one where there are none, since no encoder takes a batch of nothing."""
        filling = tf.fill([_one_if_empty(tf.size(sentences))], "")
        return self.tokenizer(tf.concat([sentences, filling], axis=0), self._max_seq_length)

    def _token_checks(self, tokens: dict[str, tf.Tensor]) -> list[tf.Operation]:
        shape = tf.shape(tokens["input_word_ids"])
        # Each a condition, and what the error says where it does not hold.
        checks = []
        for name in TOKEN_INPUTS[1:]:
            found = tf.shape(tokens[name])
            said = [f"{name}: found shape", found, "expected that of input_word_ids:", shape]
            checks.append((tf.reduce_all(tf.equal(found, shape)), said))
        ends = {"input_word_ids": self.tokenizer.vocab_size, "input_mask": 2, "input_type_ids": self._num_types}
        for name, end in ends.items():
            least, most = tf.reduce_min(tokens[name]), tf.reduce_max(tokens[name])
            expected = "0 or more" if end is None else f"0 to {end - 1}"
            # Of no ids the least is the largest int32 and the most the smallest.
            fits = least >= 0 if end is None else (least >= 0) & (most < end)
            checks.append((fits, [f"{name}: found", least, "to", most, f"expected {expected}"]))
        has_words = tf.reduce_all(tf.reduce_any(tokens["input_mask"] > 0, axis=1))
        checks.append((has_words, ["input_mask: found a row of zeros, expected a 1 for every id"]))
        if self._most_positions is not None:
            said = ["input_word_ids: found", shape[1], f"positions, expected at most {self._most_positions}"]
            checks.append((shape[1] <= self._most_positions, said))
        return [tf.debugging.Assert(holds, said) for holds, said in checks]

    def _pad_empty_batch(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The tokens, and a row of [CLS] where they have none: no encoder takes a batch of nothing."""
        shape = tf.shape(tokens["input_word_ids"])
        nothing = _one_if_empty(shape[0])
        width = tf.maximum(shape[1], nothing)
        values = {"input_word_ids": self.tokenizer.cls_id, "input_mask": 1, "input_type_ids": 0}
        return {
            name: tf.concat([tf.reshape(tokens[name], [shape[0], width]), tf.fill([nothing, width], value)], axis=0)
            for name, value in values.items()
        }

    def _embed(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        embedding = reduce_dimension(self._latents(self._pool(tokens)), self._low_dim)
        return tf.nn.l2_normalize(embedding, axis=-1) if self._normalize else embedding


def _one_if_empty(n: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.equal(n, 0), tf.int32)


def _of_rank(rank: int, value: tf.Tensor, name: str) -> tf.Tensor:
    # The session that a server runs does not compare what it is fed with the signature's shapes.
    return tf.ensure_shape(value, [None] * rank, name=name)
