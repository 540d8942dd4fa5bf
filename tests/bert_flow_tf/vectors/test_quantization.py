"""Embeddings as integers have the values of sentence-transformers."""

import warnings

import numpy as np
import pytest

from bert_flow_tf.vectors.quantization import ENCODE_PRECISIONS, quantized
from tests.refusals import user_error

ROWS = np.random.default_rng(0).normal(size=(120, 12)).astype(np.float32)
INTEGERS = ("int8", "uint8")


@pytest.fixture(scope="module")
def expected(golden_dir):
    return np.load(golden_dir / "transformers" / "sentence_transformer.npz")


@pytest.mark.filterwarnings("ignore:precision")
@pytest.mark.parametrize("precision", ENCODE_PRECISIONS[1:])
def test_precisions_are_the_librarys(expected, precision):
    found = quantized(expected["embeddings"], precision)
    assert found.dtype == expected[precision].dtype
    np.testing.assert_array_equal(found, expected[precision])
    shape = (0, expected[precision].shape[1])
    assert quantized(expected["embeddings"][:0], precision).shape == shape


@pytest.mark.parametrize("precision", INTEGERS)
def test_given_ranges_hold_for_one_row(precision):
    ranges = np.stack([ROWS.min(axis=0), ROWS.max(axis=0)])
    one_by_one = [quantized(row[np.newaxis], precision, ranges)[0] for row in ROWS]
    np.testing.assert_array_equal(one_by_one, quantized(ROWS, precision))
    # This is the library's formula.
    steps = (ranges[1] - ranges[0]) / 255
    levels = np.clip((ROWS[:1] - ranges[0]) / steps, 0, 255).astype(np.uint8).astype(int)
    expected = levels - 128 if precision == "int8" else levels
    np.testing.assert_array_equal(quantized(ROWS[:1], precision, ranges), expected)
    # Numbers beyond the range become its ends.
    ends = np.iinfo(precision)
    beyond = quantized(np.stack([ranges[0] - 1, ranges[1] + 1]), precision, ranges)
    assert (beyond[0] == ends.min).all() and (beyond[1] == ends.max).all()


@pytest.mark.parametrize("precision", INTEGERS)
def test_rows_without_a_range_are_named(precision):
    with user_error(f"precision: found {precision} for one embedding"):
        quantized(ROWS[:1], precision)
    with user_error(f"precision: found {precision} for 3 equal embeddings"):
        quantized(ROWS[[4, 4, 4]], precision)
    with user_error("ranges: found shape [12], expected [2, 12]"):
        quantized(ROWS, precision, ROWS[0])


def test_few_rows_give_a_warning():
    with pytest.warns(UserWarning, match="precision: the ranges of int8 are those of 99"):
        quantized(ROWS[:99], "int8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantized(ROWS[:100], "int8")
        quantized(ROWS[:1], "binary")
        assert quantized(ROWS[:1], "float32") is not None
