"""Importing the flow says nothing."""

import os
import subprocess
import sys


def test_importing_the_calibrator_prints_nothing():
    quiet = ("TF_CPP_MIN_LOG_LEVEL", "PYTHONWARNINGS")
    environment = {name: value for name, value in os.environ.items() if name not in quiet}
    code = "from glow import FlowCalibrator; FlowCalibrator().get_params()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
