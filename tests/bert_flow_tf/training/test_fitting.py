"""Held-out sentences and default epochs of a fit."""

import pytest

from bert_flow_tf.training.fitting import default_epochs, hold_out
from tests.refusals import user_error

SENTENCES = [f"sentence {i}" for i in range(200)] * 2


def test_a_share_of_the_different_sentences_is_held_out():
    kept, held_out = hold_out(SENTENCES, 0.1, 64, seed=1)
    # A tenth of the 200 different ones is less than the least share, a fifth.
    assert len(held_out) == len(set(held_out)) == 40
    assert kept == [sentence for sentence in SENTENCES if sentence not in held_out]
    assert hold_out(SENTENCES, 0.1, 64, seed=1) == (kept, held_out)
    assert hold_out(SENTENCES, 0.1, 64, seed=2)[1] != held_out
    for count, held in ((30_000, 1000), (8000, 400), (2000, 200), (500, 100)):
        assert len(hold_out([str(i) for i in range(count)], 0.05, 64, seed=1)[1]) == held


@pytest.mark.parametrize(("fraction", "why"), [(0, "not asked for"), (0.9, "less than a step left")])
def test_nothing_is_held_out_where_that_says_little(fraction, why):
    assert hold_out(SENTENCES, fraction, 64, seed=1) == (SENTENCES, []), why
    assert hold_out(SENTENCES[:49], 0.05, 8, seed=1) == (SENTENCES[:49], []), "too few"
    with user_error("dev_fraction: found 1, expected a number from 0 to below 1"):
        hold_out(SENTENCES, 1, 64, seed=1)


def test_a_flow_learns_an_epoch_or_300_steps():
    assert [default_epochs(64, rows) for rows in (6400, 6401, 40_000)] == [3, 3, 1]
