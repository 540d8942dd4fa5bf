"""The demo encoder's embeddings."""

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer


def test_it_is_a_six_layer_uncased_bert_of_sentences(demo_dir):
    source = resolve_encoder(bert_hub=demo_dir)
    encoder = SentenceEncoder(source, "avg", trainable=False)
    assert (encoder.num_layers, encoder.hidden_size, encoder.max_seq_length) == (6, 384, 512)
    assert source.do_lower_case is True
    sentences = ["A man plays the guitar.", "Someone is playing guitar.", "The bank raised its rates."]
    sentences += ["A dog runs.", "Stocks fell on Monday", "two plus two is four"]
    embeddings = encoder(Tokenizer.from_source(source)(tf.constant(sentences), 64))
    # ORIGINAL: seen in the TF1 run of these weights, where data-dependent initialisation then fails.
    assert np.sum(embeddings.numpy().std(axis=0) < 1e-3) == 3
    unit = tf.math.l2_normalize(embeddings, axis=1)
    cosines = tf.matmul(unit, unit, transpose_b=True).numpy()
    assert cosines[0, 1] > 0.7
    assert cosines[0, 2] < 0.2
