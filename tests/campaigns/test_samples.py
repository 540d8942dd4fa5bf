"""A sample of each campaign."""

import os
import pathlib
import re
import subprocess
import sys


def test_nothing_is_violated():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.campaigns"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    summaries = re.findall(r"^[\d,]+ (kills|limits|times two at once|inputs), 0 violations$", done.stdout, re.MULTILINE)
    assert summaries == ["kills", "limits", "times two at once", "inputs"], done.stdout
