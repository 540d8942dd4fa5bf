"""Figures against targets; `test_run.py` has the closing line."""

import math

import pytest

from benchmarks.targets import TARGETS, Target, Verdict

RATIO = Target("encode", "ratio", "encode", True, 1.0, aim=1.15)
COST = Target("start_up", "seconds", "", False, 12.0, unit=" s")


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [(RATIO, 0.999, False), (RATIO, 1.0, True), (COST, 12.0, True), (COST, 12.001, False)],
)
def test_a_ratio_is_met_from_its_target_on_and_a_cost_up_to_it(target, value, met):
    assert Verdict(target, value).met is met


def test_a_figure_that_is_no_number_meets_nothing():
    assert not any(target.is_met(math.nan) for target in TARGETS)


def test_a_verdict_says_the_question_the_target_and_the_aim():
    assert Verdict(RATIO, 0.9).line == "encode: 0.90x, target >= 1x, aim 1.15x: missed"
    small = Target("encode", "loss", "", False, 0.002, unit="")
    assert str(Verdict(small, 0.001)) == "encode.loss 0.0010 <= 0.002"
