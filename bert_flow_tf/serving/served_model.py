"""What an export holds: tokenizer, encoder, flow and pooling as four signatures that any TensorFlow can run."""

import tensorflow as tf

from bert_flow_tf.model import cosine_similarity, reduce_dimension
from bert_flow_tf.serving.bfloat16 import Bfloat16Encoder
from bert_flow_tf.tokenizer import vocabulary_asset

_TOKEN_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")


class ServedBertFlow(tf.Module):
    """The functions that become the signatures of a SavedModel, see `signatures`.

    Every one takes any number of rows, none included, and pads to the longest sentence of the batch. Whatever does not
    fit a signature (rank, length of one input against another's, an id that is no word piece) is an InvalidArgument
    error that names the input. Bytes that are not UTF-8 are dropped, as in the original; an empty sentence is one of no
    word pieces.

    Args:
      bert_flow: `api.BertFlow`.
      normalize: whether embeddings are scaled to norm 1.
      low_dim: see `model.reduce_dimension`.
      max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.
      bfloat16: whether the encoder multiplies matrices, and keeps them, in bfloat16.
    """

    def __init__(self, bert_flow, *, normalize, low_dim, max_seq_length, bfloat16=False):
        super().__init__(name="bert_flow")
        self.vocabulary = tf.saved_model.Asset(str(vocabulary_asset(bert_flow.source.preprocess_dir)))
        self.tokenizer = bert_flow.tokenizer
        self.flow = bert_flow.flow
        encoder = bert_flow.encoder
        if bfloat16:
            self.encoder = Bfloat16Encoder(lambda tokens: encoder(tokens, training=False), _TOKEN_INPUTS)
            self._pool = self.encoder
        else:
            # The variables and not the layer: Keras would save further functions, with dropout, beside those served.
            self.encoder_variables = list(encoder.variables)
            self._pool = lambda tokens: encoder(tokens, training=False)
        self._normalize = normalize
        self._low_dim = low_dim
        self._max_seq_length = max_seq_length
        self._most_positions = encoder.max_seq_length

    def signatures(self):
        """dict of name -> function, as `tf.saved_model.save` takes it."""
        return {
            "serving_default": self.embed_sentences,
            "similarity": self.similarity,
            "tokens": self.embed_tokens,
            "pooled": self.pool_sentences,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def embed_sentences(self, sentences):
        """`{"embedding": float32 [n, D]}` of `sentences`, string [n] in UTF-8."""
        return {"embedding": self._embed(self._tokenize(_vector(sentences, "sentences")))}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="sentence_a"),
            tf.TensorSpec([None], tf.string, name="sentence_b"),
        ]
    )
    def similarity(self, sentence_a, sentence_b):
        """`{"cosine": float32 [n]}` of each pair of `sentence_a` and `sentence_b`, string [n]."""
        sentence_a, sentence_b = _vector(sentence_a, "sentence_a"), _vector(sentence_b, "sentence_b")
        n, m = tf.size(sentence_a), tf.size(sentence_b)
        check = tf.debugging.Assert(
            tf.equal(n, m), ["sentence_b: found", m, "sentences, expected as many as sentence_a has:", n]
        )
        with tf.control_dependencies([check]):
            sentence_a, sentence_b = tf.identity(sentence_a), tf.identity(sentence_b)
        both = self._embed(self._tokenize(tf.concat([sentence_a, sentence_b], axis=0)))
        return {"cosine": cosine_similarity(both[:n], both[n:])}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, name=name) for name in _TOKEN_INPUTS])
    def embed_tokens(self, input_word_ids, input_mask, input_type_ids):
        """`{"embedding": float32 [n, D]}` of an encoder's inputs, int32 [n, t], such as the preprocess model's."""
        tokens = dict(zip(_TOKEN_INPUTS, (input_word_ids, input_mask, input_type_ids), strict=True))
        tokens = {name: _matrix(value, name) for name, value in tokens.items()}
        with tf.control_dependencies(self._token_checks(tokens)):
            tokens = {name: tf.identity(value) for name, value in tokens.items()}
        return {"embedding": self._embed(tokens)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def pool_sentences(self, sentences):
        """`{"embedding": float32 [n, D]}` of `sentences`, string [n], before the flow: what it was learned on."""
        return {"embedding": self._rows(self._pool, self._tokenize(_vector(sentences, "sentences")))}

    def _tokenize(self, sentences):
        return self.tokenizer(sentences, self._max_seq_length)

    def _token_checks(self, tokens):
        ids = tokens["input_word_ids"]
        shape = tf.shape(ids)
        checks = [
            tf.debugging.Assert(
                tf.reduce_all(tf.equal(tf.shape(tokens[name]), shape)),
                [f"{name}: found shape", tf.shape(tokens[name]), "expected that of input_word_ids:", shape],
            )
            for name in _TOKEN_INPUTS[1:]
        ]
        ranges = [("input_word_ids", self.tokenizer.vocab_size), ("input_mask", 2), ("input_type_ids", 2)]
        for name, end in ranges:
            value = tokens[name]
            checks.append(
                tf.debugging.Assert(
                    tf.reduce_all((value >= 0) & (value < end)),
                    [f"{name}: found", tf.reduce_min(value), "to", tf.reduce_max(value), f"expected 0 to {end - 1}"],
                )
            )
        checks.append(
            tf.debugging.Assert(
                tf.reduce_all(tf.reduce_any(tokens["input_mask"] > 0, axis=1)),
                ["input_mask: found a row of zeros, expected a 1 for every id"],
            )
        )
        if self._most_positions is not None:
            checks.append(
                tf.debugging.Assert(
                    shape[1] <= self._most_positions,
                    ["input_word_ids: found", shape[1], f"positions, expected at most {self._most_positions}"],
                )
            )
        return checks

    def _embed(self, tokens):
        embedding = self._rows(self._flow_of_pooled, tokens)
        return tf.nn.l2_normalize(embedding, axis=-1) if self._normalize else embedding

    def _flow_of_pooled(self, tokens):
        u = self._pool(tokens)
        return reduce_dimension(u if self.flow is None else self.flow.forward(u), self._low_dim)

    def _rows(self, function, tokens):
        """`function` of the tokens; an encoder is not made for a batch of nothing, so it gets a row that is dropped."""
        n = tf.shape(tokens["input_word_ids"])[0]
        nothing = tf.cast(tf.equal(n, 0), tf.int32)
        filling = {"input_word_ids": self.tokenizer.cls_id, "input_mask": 1, "input_type_ids": 0}
        padded = {}
        for name, value in tokens.items():
            width = tf.where(tf.equal(n, 0), 2, tf.shape(value)[1])
            # No row of the batch's width, where there is something in the batch.
            row = tf.fill([nothing, width], filling[name])
            padded[name] = tf.concat([tf.reshape(value, [n, width]), row], axis=0)
        return function(padded)[:n]


# The session that a server runs does not compare what it is fed with the signature's shapes.
def _vector(value, name):
    return tf.ensure_shape(value, [None], name=name)


def _matrix(value, name):
    return tf.ensure_shape(value, [None, None], name=name)
