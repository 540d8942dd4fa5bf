"""The preprocess model of an encoder as TF-Hub publishes it, with the exact tokenizer inside."""

import os

import tensorflow as tf
from official.nlp.modeling import layers
from official.nlp.tools import export_tfhub_lib

from bert_flow_tf.encoder.tokenizer import Tokenizer, read_vocabulary

DEFAULT_SEQ_LENGTH = 128  # as TF-Hub's own preprocess models


class _SpecialTokens(tf.Module):
    def __init__(self, tokens: dict[str, int]) -> None:
        super().__init__()
        self._tokens = tokens

    @tf.function(input_signature=[])
    def __call__(self) -> dict[str, tf.Tensor]:
        return {name: tf.constant(value) for name, value in self._tokens.items()}


class _Tokenize(tf.Module):
    def __init__(self, tokenizer: Tokenizer, special_tokens: dict[str, int]) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self.get_special_tokens_dict = _SpecialTokens(special_tokens)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer.tokenize_words(sentences)


class Preprocess(tf.Module):
    """Preprocess model: sentences, a string tensor [n], to the dict of int32 [n, 128] that a text encoder takes.

    It has the parts of TF-Hub's preprocess models: `tokenize` (string [n] -> ragged int32 [n, (words), (pieces)]),
    `tokenize.get_special_tokens_dict()` and `bert_pack_inputs(list of one or two such tensors, seq_length)`.
    The vocabulary becomes an asset of the SavedModel.
    """

    def __init__(self, vocab_file: str | os.PathLike, do_lower_case: bool) -> None:
        super().__init__(name="preprocess")
        vocab = read_vocabulary(vocab_file)
        tokenizer = Tokenizer(vocab, do_lower_case)
        special_tokens = {
            "start_of_sequence_id": tokenizer.cls_id,
            "end_of_segment_id": tokenizer.sep_id,
            "padding_id": tokenizer.pad_id,
            "mask_id": tokenizer.mask_id,
            "vocab_size": tokenizer.vocab_size,
        }
        self.vocab_file = tf.saved_model.Asset(str(vocab_file))
        self.do_lower_case = tf.Variable(bool(do_lower_case), trainable=False)
        self._tokenizer = tokenizer
        self.tokenize = _Tokenize(tokenizer, special_tokens)
        self.bert_pack_inputs = export_tfhub_lib.BertPackInputsSavedModelWrapper(
            layers.BertPackInputs(seq_length=DEFAULT_SEQ_LENGTH, special_tokens_dict=special_tokens)
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._tokenizer(sentences, DEFAULT_SEQ_LENGTH, pad_to_max=True)
