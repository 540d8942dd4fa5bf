"""A sample of each campaign."""

import os
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("campaign", "arguments", "names", "summary"),
    [
        ("kill", ("--trials", "4", "--at", "write"), ("flow", "export", "convert", "encode"), " kills, 0 violations\n"),
        ("full_disk", ("--limits", "3"), ("encode", "flow"), "6 limits, 0 violations\n"),
    ],
)
def test_nothing_is_violated(campaign, arguments, names, summary):
    command = [sys.executable, "-m", f"tests.campaigns.{campaign}", *arguments, "--only", *names]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.endswith(summary)
