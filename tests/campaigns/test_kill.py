"""A sample of the campaign that kills: every way to kill, of a command of each kind."""

import os
import pathlib
import subprocess
import sys


def test_a_sample_of_killed_commands_leaves_what_they_leave_when_nobody_kills_them():
    names = ("flow", "export", "convert", "encode")
    command = [sys.executable, "-m", "tests.campaigns.kill", "--trials", "4", "--seed", "3", "--only", *names]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.endswith("4 trials, 0 violations\n")
