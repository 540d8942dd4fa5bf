"""One trial of each fault for every command that writes; `python -m tests.faults` runs more."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.faults import COMMANDS, FAULTS


@pytest.fixture(scope="module")
def violations():
    """dict of (command, fault) -> violation."""
    root = pathlib.Path(__file__).parents[1]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.faults", "--trials", "1"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return {(name, fault): violation for name, fault, violation in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_command_survives(violations, name, fault):
    assert violations[name, fault] == ""
