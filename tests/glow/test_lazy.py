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


def test_threads_that_import_at_once_leave_the_filters_as_they_were():
    code = """
import threading, warnings
from glow.lazy import quiet_import
before = list(warnings.filters)
def work():
    for _ in range(300):
        with quiet_import():
            pass
threads = [threading.Thread(target=work) for _ in range(4)]
[one.start() for one in threads], [one.join() for one in threads]
assert warnings.filters == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_hides_two_warnings_and_no_others():
    code = """
import warnings
from glow.lazy import quiet_import
def warn(module, category, message):
    warnings.warn_explicit(message, category, "file.py", 1, module=module)
with warnings.catch_warnings(record=True) as shown, quiet_import():
    warn("google.api_core", FutureWarning, "You are using a Python version")
    warn("tensorflow_hub", UserWarning, "pkg_resources is deprecated as an API")
    warn("numpy", FutureWarning, "In a later version")
    warn("google.api_core", UserWarning, "another")
print(*(str(one.message) for one in shown), sep=", ")
"""
    # The scripts set this variable.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    done = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert done == "In a later version, another\n"
