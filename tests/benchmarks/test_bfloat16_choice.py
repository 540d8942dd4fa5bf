"""The figure of the choice between float32 and bfloat16."""

import pytest

from benchmarks.bfloat16_choice import percent_slower


@pytest.mark.parametrize(
    "ratio, chosen, percent",
    [
        (0.5, ["bfloat16"], -50),
        (0.5, ["float32"], 100),
        (1.25, ["float32"], -20),
        (1.25, ["bfloat16"], 25),
        # A choice that is not made every time counts as its worst.
        (1.25, ["float32", "bfloat16", "float32"], 25),
    ],
)
def test_the_worst_choice_counts(ratio, chosen, percent):
    assert percent_slower(ratio, chosen) == pytest.approx(percent)
