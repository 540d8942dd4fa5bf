"""A cluster of Ray on this machine."""

import functools
import os
import signal
import subprocess
import sys

import pytest

from tests.bert_flow_tf.scale.ray_cluster import VARIABLES, head


@pytest.fixture(scope="session")
def cluster(require):
    """Address of a head of two processors, and the variables by which one reaches it."""
    require("ray")
    with head(2) as address:
        yield address, VARIABLES


@pytest.fixture
def start():
    """Function (arguments of Python, variables) that starts a process, which has ended when the test has."""
    started = []

    def run(*arguments, **variables):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
        command = [sys.executable, *map(str, arguments)]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        # A shell ignores SIGINT for what it runs in the background, as these tests may be.
        heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        started.append(subprocess.Popen(command, env=environment, **pipes, text=True, preexec_fn=heard))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()
