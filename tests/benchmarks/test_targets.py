"""Figures against targets, and the closing line."""

import math

import pytest

from benchmarks.targets import TARGETS, Target, Verdict, judge, summary


def _met(target):
    return target.target * (1.01 if target.at_least else 0.99)


def _results(quick=False, **changed):
    """Results whose figures all meet their targets, except those given as benchmark__figure."""
    results = {}
    for target in TARGETS:
        result = results.setdefault(target.benchmark, {"quick": quick, "figures": {}})
        result["figures"][target.figure] = changed.get(f"{target.benchmark}__{target.figure}", _met(target))
    return results


def test_a_ratio_is_met_from_its_target_on_and_a_cost_up_to_it():
    ratio = Target("encode", "ratio", "", True, 1.0)
    cost = Target("start_up", "seconds", "", False, 12.0)
    assert [ratio.is_met(value) for value in (0.999, 1.0, 1.5)] == [False, True, True]
    assert [cost.is_met(value) for value in (11.0, 12.0, 12.001)] == [True, True, False]


def test_a_figure_that_is_no_number_meets_nothing():
    assert not any(target.is_met(math.nan) for target in TARGETS)


def test_the_targets_are_those_of_the_plan():
    # What is asked of each, said a second time.
    wanted = {(target.benchmark, target.figure): (target.wanted, target.aim) for target in TARGETS}
    assert wanted == {
        ("flow_run", "to_original"): (">= 5x", None),
        ("flow_run", "spearman_from_original"): ("<= 0.003", None),
        ("flow_run", "to_pytorch"): (">= 2.5x", 4.0),
        ("flow_run", "spearman_from_pytorch"): ("<= 0.003", None),
        ("flow_run", "memory_to_original"): ("<= 1x", None),
        ("encode", "to_sentence_transformers"): (">= 1x", 1.15),
        ("encode_bfloat16", "to_float32"): (">= 1.6x", None),
        ("encode_bfloat16", "to_bfloat16"): (">= 1x", None),
        ("encode_bfloat16", "spearman_loss"): ("<= 0.002", None),
        ("flow_step", "to_pytorch"): (">= 1.5x", None),
        ("flow_share", "percent"): ("<= 2%", None),
        ("floor", "percent"): (">= 70%", 80.0),
        ("start_up", "seconds"): ("<= 12 s", None),
        ("growth", "time_deviation"): ("<= 10%", None),
        ("growth", "memory_ratio"): ("<= 1.1x", None),
    }


def test_only_what_was_measured_is_judged():
    results = {"floor": {"quick": False, "figures": {"percent": 71.0}}}
    assert [verdict.target.benchmark for verdict in judge(results)] == ["floor"]


def test_the_summary_is_one_line_that_holds_every_figure_and_its_target():
    line, met = summary(_results())
    assert met
    assert line.startswith(f"summary: {len(TARGETS)} of {len(TARGETS)} met; ")
    assert "\n" not in line and "MISSED" not in line
    assert "encode.to_sentence_transformers 1.01x >= 1x" in line
    assert "encode_bfloat16.spearman_loss 0.0020 <= 0.002" in line


def test_one_missed_target_is_named_and_counted():
    line, met = summary(_results(floor__percent=55.5))
    assert not met
    assert line.startswith(f"summary: {len(TARGETS) - 1} of {len(TARGETS)} met; ")
    assert "floor.percent 55.50% >= 70% MISSED" in line
    assert line.count("MISSED") == 1


@pytest.mark.parametrize("value", [1.0, 1e9])
def test_quick_figures_are_not_judged(value):
    line, met = summary(_results(quick=True, start_up__seconds=value))
    assert met
    assert "no results" in line and "start_up" in line and "MISSED" not in line


def test_a_verdict_says_the_question_the_target_and_the_aim():
    verdict = Verdict(Target("encode", "ratio", "encode", True, 1.0, aim=1.15), 0.9)
    assert verdict.line == "encode: 0.90x, target >= 1x, aim 1.15x: missed"
