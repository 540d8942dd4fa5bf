"""Each kind of writer survives a fault; `python -m tests.faults` tries all commands."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.faults import COMMANDS

# The recipe only runs the other commands, early stopping writes all that other trainings write, and
# `evaluate` writes its record as `compare` and `isotropy` do.
_LIKE_OTHERS = ("recipe", "train_flow", "train_bert", "compare", "isotropy")
_NAMES = [name for name in COMMANDS if name not in _LIKE_OTHERS]


@pytest.fixture(scope="module")
def trials():
    """Command, fault and violation of each trial."""
    root = pathlib.Path(__file__).parents[1]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.faults", "--quick", "--only", *_NAMES]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", _NAMES)
def test_command_survives(trials, name):
    found = [violation for command, _, violation in trials if command == name]
    assert found and not any(found)
