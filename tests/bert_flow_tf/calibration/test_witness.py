"""The witness on embeddings with known answers."""

import numpy as np
import pytest

from bert_flow_tf.calibration.witness import Witness, directions, witness

SENTENCES = [f"a{i} b{i} c{i} d{i}" for i in range(100)]


def embed(sentences):
    """Return bags of words, [n, 400]."""
    rows = np.zeros([len(sentences), 400])
    for row, sentence in zip(rows, sentences, strict=True):
        row[[100 * "abcd".index(word[0]) + int(word[1:]) for word in sentence.split()]] = 1
    return rows


# The first ten sentences have other words than the rest.
WEIGHTS = np.where(np.arange(400) % 100 < 10, 1, 1e-3)


def forget(u):
    """Weigh down most words and add a constant, which makes a cone."""
    return u * WEIGHTS + 0.1


def seen(before, after, sentences=SENTENCES, encode=embed, seed=0):
    return witness(encode, before, after, sentences, encode(sentences), seed)


def test_witness_correlates_shares_of_mixtures_with_cosines():
    same = seen(np.copy, np.copy)
    # Bags of words tell the share of a mixture exactly.
    assert same.before == same.after == pytest.approx(1, abs=0.03) and same.sentences == 100
    assert same.claim.startswith("no clear change")
    assert seen(np.copy, np.copy, seed=1) != same == seen(np.copy, np.copy)
    assert seen(np.copy, np.copy, ["a1", "b1"]).sentences == 2


def test_witness_tells_a_map_that_helps_from_one_that_harms():
    harmed = seen(np.copy, forget)
    # 100 sentences of four independent words each are as isotropic as they can be.
    assert harmed.claim == "harms" and harmed.after < harmed.before and harmed.directions > 300
    helped = seen(np.copy, lambda u: (u - 0.1) / WEIGHTS, encode=lambda texts: forget(embed(texts)))
    assert helped.claim == "helps" and helped.directions < 25
    assert (helped.before, helped.after) == pytest.approx((harmed.after, harmed.before), abs=0.01)


def test_few_sentences_and_spaces_between_the_bounds_are_no_claim():
    for sentences, after, ratio, claim in (
        (100, 0.6, 10, "helps"),
        (99, 0.6, 10, "no clear change"),
        (100, 0.4, 10, "no clear change"),
        (100, 0.6, 30, "no clear change"),
        (100, 0.49, 90, "no clear change"),
        (100, 0.4, 40, "no clear change"),
        (100, 0.4, 90, "harms"),
    ):
        assert Witness(sentences, 0.5, after, ratio).claim.split(";")[0] == claim


def test_directions_do_not_depend_on_the_number_of_rows():
    rng = np.random.default_rng(0)
    for n in (100, 400, 3000):
        assert directions(rng.normal(size=(n, 50))) == pytest.approx(50, rel=0.05)
        assert directions(
            rng.normal(size=(n, 50)) * np.where(np.arange(50) < 5, 1, 1e-3)
        ) == pytest.approx(5, rel=0.1)
    assert directions(np.eye(4)) == 4
