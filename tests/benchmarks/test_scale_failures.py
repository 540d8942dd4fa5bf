"""What the simulation of dying workers says is what is known of it."""

import pytest

from benchmarks.scale_failures import simulate

_GIVEN = {"sentences": 100_000, "workers": 10, "rate": 10.0, "load": 0.0, "seed": 1}


def test_without_deaths_the_time_is_that_of_the_work():
    found = simulate(rows=1000, deaths_per_hour=1e-12, **_GIVEN)
    assert found == {"shards": 100, "deaths": 0, "repeated": 0, "given_up": 0, "hours": pytest.approx(1000 / 3600)}


def test_what_is_repeated_is_half_of_a_shard_for_each_death():
    # A shard takes 100 s, a worker lives for an hour.
    found = simulate(rows=1000, deaths_per_hour=1.0, **_GIVEN | {"sentences": 10_000_000})
    assert found["deaths"] == pytest.approx(10_000 * 100 / 3600, rel=0.1)
    assert found["repeated"] / found["deaths"] == pytest.approx(500, rel=0.1)
    # Three deaths in a row: 10,000 * (100 / 3600) ** 3 is 0.2.
    assert found["given_up"] <= 2
