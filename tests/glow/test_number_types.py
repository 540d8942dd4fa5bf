"""NumPy's numbers are numbers."""

import json

import numpy as np
import pytest

from glow.config import GlowConfig
from glow.number_types import is_number, is_whole_number, plain_number

WHOLE = [3, np.int64(3), np.uint8(3)]
REAL = [1.5, np.float32(1.5), np.float64(1.5)]
OTHER = [True, np.bool_(True), "3", None, 1j, np.arange(3)]


@pytest.mark.parametrize("value", [*WHOLE, *REAL, *OTHER], ids=lambda value: type(value).__name__)
def test_numbers_are_told_from_other_values(value):
    is_one_of = [any(value is one for one in kind) for kind in (WHOLE, REAL)]
    assert [is_whole_number(value), is_number(value)] == [is_one_of[0], any(is_one_of)]
    assert type(plain_number(value)).__module__ != "numpy" or value is OTHER[1] or value is OTHER[5]


def test_a_configuration_takes_them():
    config = GlowConfig(n_levels=np.int64(2), coupling_dropout=np.float64(0.25))
    assert json.dumps([config.n_levels, config.coupling_dropout]) == "[2, 0.25]"
