"""What is held out of a fit, and how long a flow learns where nobody says it."""

import pytest

from bert_flow_tf.training.fitting import default_epochs, hold_out
from tests.refusals import user_error

SENTENCES = [f"sentence {i}" for i in range(200)] * 2


def test_a_share_of_the_different_sentences_is_held_out_wherever_they_occur():
    kept, held_out = hold_out(SENTENCES, 0.1, 64, seed=1)
    assert len(held_out) == len(set(held_out)) == 20
    assert kept == [sentence for sentence in SENTENCES if sentence not in held_out]
    assert hold_out(SENTENCES, 0.1, 64, seed=1) == (kept, held_out)
    assert hold_out(SENTENCES, 0.1, 64, seed=2)[1] != held_out
    assert len(hold_out([str(i) for i in range(30_000)], 0.05, 64, seed=1)[1]) == 1000


@pytest.mark.parametrize(("fraction", "why"), [(0, "not asked for"), (0.04, "too few"), (0.9, "less than a step left")])
def test_nothing_is_held_out_where_that_says_little_or_costs_too_much(fraction, why):
    assert hold_out(SENTENCES, fraction, 64, seed=1) == (SENTENCES, []), why


def test_a_share_is_less_than_all():
    with user_error("dev_fraction: found 1, expected a number from 0 to below 1"):
        hold_out(SENTENCES, 1, 64, seed=1)


@pytest.mark.parametrize(("rows", "expected"), [(6400, 3), (6401, 3), (40_000, 1)])
def test_a_flow_learns_one_epoch_or_as_many_as_give_300_steps(rows, expected):
    assert default_epochs(64, rows) == expected
