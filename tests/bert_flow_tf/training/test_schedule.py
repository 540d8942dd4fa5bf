"""TF1's schedule, by hand (tests/golden has what TF1 computed)."""

import pytest

from bert_flow_tf.training.schedule import WarmupLinearDecay


@pytest.mark.differs("schedule's first step")
def test_rate_rises_from_the_first_step_and_falls_to_zero():
    # Where warm-up ends, the decay, counted from the start, has already taken a tenth.
    for warmup_steps, rates in (
        (10, {0: 0.1, 5: 0.6, 8: 0.9, 9: 0.9, 49: 0.5, 99: 0.0, 150: 0.0}),
        (0, {0: 0.99, 99: 0.0}),
    ):
        schedule = WarmupLinearDecay(1.0, total_steps=100, warmup_steps=warmup_steps)
        for step, rate in rates.items():
            assert float(schedule(step)) == pytest.approx(rate), step
