"""Held-out sentences and progress bars of a fit."""

import numpy as np

from bert_flow_tf.calibration import learning as fitting
from bert_flow_tf.calibration.settings import FitSettings
from tests.refusals import user_error

SENTENCES = [f"sentence {i}" for i in range(200)] * 2


def hold_out(sentences, fraction, batch_size=64, seed=1):
    return fitting.hold_out(
        sentences, FitSettings(dev_fraction=fraction, batch_size=batch_size, seed=seed)
    )


def test_a_share_of_the_different_sentences_is_held_out():
    kept, held_out = hold_out(SENTENCES, 0.1)
    # A tenth of the 200 different ones is less than the least share, a fifth.
    assert len(held_out) == len(set(held_out)) == 40
    assert kept == [sentence for sentence in SENTENCES if sentence not in held_out]
    assert hold_out(SENTENCES, 0.1) == (kept, held_out)
    assert hold_out(SENTENCES, 0.1, seed=2)[1] != held_out
    for count, held in ((30_000, 1000), (8000, 400), (2000, 200), (500, 100)):
        assert len(hold_out([str(i) for i in range(count)], 0.05)[1]) == held


def test_nothing_is_held_out_where_that_says_little():
    # It is not asked for; it would leave less than a step; it would be too few.
    for sentences, fraction, batch_size in (
        (SENTENCES, 0, 64),
        (SENTENCES, 0.9, 64),
        (SENTENCES[:49], 0.05, 8),
    ):
        assert hold_out(sentences, fraction, batch_size) == (sentences, [])


def test_each_progress_bar_says_what_is_encoded():
    labels = []

    def encode(texts, label):
        labels.append(label)
        return np.random.default_rng(len(texts)).normal(size=[len(texts), 8])

    a, b = SENTENCES[:20], SENTENCES[20:40]
    fitting.fit_sentences(
        encode, SENTENCES, FitSettings(method="whitening"), (a, b, list(range(20)))
    )
    assert labels == ["sentences", "held out", "pairs", "pairs", "held out", "held out"]


def test_embeddings_that_do_not_vary_are_an_error():
    settings = FitSettings(method="soft-whitening-0.1", dev_fraction=0)
    with user_error("fit: found embeddings that do not vary"):
        fitting.fit_sentences(lambda texts, label: np.ones([len(texts), 8]), SENTENCES, settings)
