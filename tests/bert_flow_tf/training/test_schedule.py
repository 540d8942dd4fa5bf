"""TF1's schedule, by hand (tests/golden has what TF1 computed)."""

import pytest

from bert_flow_tf.training.schedule import WarmupLinearDecay


@pytest.mark.differs("schedule's first step")
def test_rate_rises_from_the_first_step_and_falls_to_zero():
    schedule = WarmupLinearDecay(1.0, total_steps=100, warmup_steps=10)
    # Where warm-up ends, the decay, counted from the start, has already taken a tenth.
    rates = {0: 0.1, 5: 0.6, 8: 0.9, 9: 0.9, 49: 0.5, 99: 0.0, 150: 0.0}
    for step, rate in rates.items():
        assert float(schedule(step)) == pytest.approx(rate), step


def test_rate_without_warm_up_or_without_an_end():
    assert float(WarmupLinearDecay(2.0, total_steps=10)(0)) == pytest.approx(1.8)
    schedule = WarmupLinearDecay(2.0, total_steps=float("inf"), warmup_steps=10)
    assert {step: float(schedule(step)) for step in (4, 9, 10**6)} == {4: 1.0, 9: 2.0, 10**6: 2.0}
