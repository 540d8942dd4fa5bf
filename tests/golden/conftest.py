"""Deviations from the TF1 code, checked against their limits and listed at the end of the run."""

import pytest

_KEY = "deviation from TF1"


@pytest.fixture
def deviation(record_property):
    """Function (what, value, limit) that fails where the value is above the limit, and enters it in the table."""

    def check(what, value, limit):
        record_property(_KEY, (what, float(value), float(limit)))
        # As it stands, a NaN fails as well.
        assert value <= limit, f"{what}: found {value}, expected at most {limit}"

    return check


def pytest_terminal_summary(terminalreporter):
    worst = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == _KEY and report.when == "call":
                    what, found, limit = value
                    worst[what] = (max(found, worst.get(what, (0.0,))[0]), limit)
    if worst:
        terminalreporter.section("largest deviation from the TF1 code")
        for what in sorted(worst):
            found, limit = worst[what]
            terminalreporter.write_line(f"| {what} | {found:.0e} | {limit:.0e} |")
