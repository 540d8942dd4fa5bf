"""Importing the flow says nothing."""

import os
import subprocess
import sys


def test_importing_the_calibrator_prints_nothing():
    quiet = ("TF_CPP_MIN_LOG_LEVEL", "PYTHONWARNINGS")
    environment = {name: value for name, value in os.environ.items() if name not in quiet}
    code = "from glow import FlowCalibrator; FlowCalibrator().get_params()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_threads_that_import_at_once_leave_stderr_as_it_was():
    code = """
import os, sys, threading
from glow.lazy import quiet_import
before = os.fstat(2)
def work():
    for _ in range(300):
        with quiet_import():
            pass
threads = [threading.Thread(target=work) for _ in range(4)]
[one.start() for one in threads], [one.join() for one in threads]
after = os.fstat(2)
assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
