"""Measuring in turn, and whole processes."""

import os
import sys

import pytest

from benchmarks.timing import in_own_process, in_turn, paired_ratios, shown, whole_process
from bert_flow_tf.errors import UserError


def test_the_order_turns_round_every_time():
    calls = []
    ways = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert in_turn(ways, 3) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert calls == ["a", "b", "b", "a", "a", "b"]


def test_ratios_are_of_pairs_and_not_of_medians():
    # The machine slowed down tenfold in the last pair; neither side gained by that.
    ratios = paired_ratios([2.0, 3.0, 20.0], [1.0, 1.0, 10.0])
    assert ratios == {"median": 2.0, "least": 2.0, "greatest": 3.0, "all": [2.0, 3.0, 2.0]}
    assert shown(ratios) == "2.00 (2.00 to 3.00)"


def test_a_process_is_timed_to_its_first_line_and_to_its_end_and_its_peak_is_in_mib():
    program = "import time; print('first', flush=True); bytearray(400 << 20); time.sleep(0.5); print('last')"
    used = whole_process([sys.executable, "-c", program])
    assert used["output"] == "first\nlast\n"
    assert used["seconds"] >= used["seconds_to_output"] + 0.5
    # No less than what this process, which may hold TensorFlow, has itself.
    assert 400 < used["peak_memory_mib"] < 10_000


def test_a_process_that_fails_is_an_error_with_its_last_words():
    program = "import sys; print('loading', file=sys.stderr); sys.exit('no such encoder')"
    with pytest.raises(UserError, match=r"ended with status 1: no such encoder$"):
        whole_process([sys.executable, "-c", program])


def test_a_function_has_a_process_of_its_own_and_one_that_is_killed_is_named():
    assert in_own_process("floor", os.getpid) != os.getpid()
    with pytest.raises(UserError, match=r"^floor: its process was killed"):
        in_own_process("floor", os._exit, 9)
