"""Figures in the words and decimals of a table, and what is empty."""

import pytest

from bert_flow_tf.evaluation.report_cells import count, encoder_words, fixed, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0.00"),
        (1.2349, "+1.23"),
        (5.384, "+5.38"),
        (-0.5, "−0.50"),
        (0.004, "0.00"),
        (-0.004, "0.00"),
    ],
)
def test_a_difference_has_its_sign_unless_it_is_none(value, text):
    assert signed(value) == text


def test_numbers_have_two_decimals_and_counts_commas():
    assert [fixed(78.4632), fixed(-24.554), fixed(None)] == ["78.46", "−24.55", ""]
    assert [fixed(-0.00001, 4), fixed(-0.0001, 4), fixed(339.04, 0)] == ["0.0000", "−0.0001", "339"]
    assert [count(1379), count(12), count(None)] == ["1,379", "12", ""]


@pytest.mark.parametrize(
    ("name", "fine_tuning", "fingerprint", "words"),
    [
        ("demo", None, "a" * 64, "demo"),
        ("base", "NLI", "a" * 64, "base, fine-tuned on NLI (aaaaaaaa)"),
        ("base", "NLI", None, "base, fine-tuned on NLI"),
        (None, "unknown", None, "encoder, its training is not recorded"),
        (None, "other", None, "encoder, fine-tuned"),
    ],
)
def test_an_encoder_in_words(name, fine_tuning, fingerprint, words):
    encoder = {"name": name, "handle": "/my/encoder/", "fingerprint": fingerprint, "fine_tuning": fine_tuning}
    assert encoder_words(encoder) == words
