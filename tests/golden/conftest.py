"""Deviations from the TF1 code and their limits."""

import json
import os
import pathlib

import pytest

_KEY = "deviation from TF1"


@pytest.fixture
def deviation(record_property):
    """A function that lists a deviation and fails above its limit."""

    def check(what, value, limit):
        record_property(_KEY, (what, float(value), float(limit)))
        # As it stands, a NaN fails as well.
        assert value <= limit, f"{what}: found {value}, expected at most {limit}"

    return check


def pytest_terminal_summary(terminalreporter):
    """Print the largest deviations, and write them for bert-flow verify."""
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
    if path := os.environ.get("BERT_FLOW_DEVIATIONS"):
        stats = terminalreporter.stats
        outcome = {
            "deviations": [[what, *worst[what]] for what in sorted(worst)],
            "failed": [
                report.nodeid for kind in ("failed", "error") for report in stats.get(kind, ())
            ],
            "not_run": sorted({_reason(report) for report in stats.get("skipped", ())}),
        }
        pathlib.Path(path).write_text(json.dumps(outcome))


def _reason(report):
    return (
        report.longrepr[2].removeprefix("Skipped: ")
        if isinstance(report.longrepr, tuple)
        else report.nodeid
    )
