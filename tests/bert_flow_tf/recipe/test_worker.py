"""The process of the stages' commands, which are a stand-in's: what it is asked, and how it and who asks it end."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

COMMANDS = """
import builtins, os, signal, sys, time

def run_command(arguments):
    name, *rest = arguments
    return globals()[name](*rest)

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def saves():
    def save(number, frame):
        say("saved", number)
        sys.exit(130)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, save)
    say("ready")
    time.sleep(120)

def tells_its_process():
    say(os.getpid())

def prints():
    print("printed")

def fails():
    print("error: a mistake", file=sys.stderr)
    return 7

def breaks(name):
    raise getattr(builtins, name)("unexpected")

def sleeps(seconds):
    say("ready", os.getpid())
    time.sleep(float(seconds))
    say("done")
"""
PARENT = """
import signal, sys
from bert_flow_tf.recipe.worker import Worker
# A shell that starts the tests in the background has them ignore both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
with Worker(verbose=True) as worker:
    try:
        for command in sys.argv[1:]:
            print(worker.run([sys.executable, "-m", "commands", *command.split()]), flush=True)
    except KeyboardInterrupt as interrupt:
        print("ended by", *interrupt.args, flush=True)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Function that starts a process in which a `Worker` runs commands, after what the keywords say."""
    (tmp_path / "commands.py").write_text(COMMANDS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    processes = []

    def start(*commands, before=()):
        command = [*before, sys.executable, "-c", PARENT, *commands]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _wait_until(condition):
    ends = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def _worker_of(process):
    """/proc's folder of the worker that says it is ready."""
    return pathlib.Path("/proc", process.stdout.readline().removeprefix("ready ").strip())


def test_commands_share_a_process_that_ends_with_the_last(start):
    said, _ = start("tells_its_process", "prints", "tells_its_process").communicate(timeout=120)
    first, zero, printed, *rest = said.splitlines()
    # What a command prints comes before its status.
    assert (zero, printed, rest) == ("0", "printed", ["0", first, "0"])
    assert not pathlib.Path("/proc", first).exists()


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("fails", "7", "error: a mistake"),
        ("breaks ValueError", "1", "ValueError: unexpected"),
        # Not those of the pipe between the two processes.
        ("breaks EOFError", "1", "EOFError: unexpected"),
        ("breaks BrokenPipeError", "1", "BrokenPipeError: unexpected"),
    ],
)
def test_a_command_that_fails_ends_it_with_the_status_and_the_words_of_a_process_of_its_own(
    start, command, status, error
):
    said, errors = start("prints", command).communicate(timeout=120)
    assert said.splitlines() == ["printed", "0", status]
    assert errors.splitlines()[-1] == error


def test_a_worker_that_says_little_prints_nothing_and_logs_warnings_and_progress_now_and_then(tmp_path, monkeypatch):
    (tmp_path / "callbacks.py").write_text(
        "from unittest import mock\nfrom absl import flags, logging\n"
        "def run_command(arguments):\n"
        "    flags.FLAGS.mark_as_parsed()\n"
        "    logging.set_verbosity(logging.INFO)\n"
        "    logging.use_absl_handler()\n"
        "    print('printed')\n"
        "    logging.info('said at once')\n"
        "    with mock.patch('__main__._PATIENCE', 0):\n"
        "        logging.info('progress')\n"
        "    logging.warning('warned')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    code = (
        "import sys; from bert_flow_tf.recipe.worker import Worker\n"
        "with Worker() as process: process.run([sys.executable, '-m', 'callbacks'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["progress", "warned"]


@pytest.mark.parametrize(
    ("number", "received"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)],
)
def test_what_asks_it_to_end_asks_the_command_once_and_is_waited_for(start, number, received):
    process = start("saves")
    assert process.stdout.readline() == "ready\n"
    # As a terminal does: to the whole group.
    os.killpg(process.pid, number)
    said, errors = process.communicate(timeout=120)
    assert said.splitlines() == [f"saved {int(received)}", f"ended by {int(number)}"]
    assert errors == ""


def test_a_command_stops_and_continues_with_who_started_it_and_quits_with_it(start):
    process = start("sleeps 120")
    worker = _worker_of(process)

    def is_stopped():
        return (worker / "stat").read_text().split()[2] == "T"

    process.send_signal(signal.SIGTSTP)
    _wait_until(is_stopped)
    process.send_signal(signal.SIGCONT)
    _wait_until(lambda: not is_stopped())
    process.send_signal(signal.SIGQUIT)
    assert process.communicate(timeout=120)[0] == f"ended by {int(signal.SIGQUIT)}\n"
    assert not worker.exists()


def test_what_is_ignored_reaches_no_command(start):
    process = start("sleeps 1", before=["nohup"])
    _worker_of(process)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=120)[0].splitlines() == ["done", "0"]


def test_a_worker_that_is_killed_is_said_to_be(start):
    process = start("sleeps 120")
    os.kill(int(_worker_of(process).name), signal.SIGKILL)
    assert process.communicate(timeout=120) == (f"{-signal.SIGKILL}\n", "")


def test_a_worker_whose_parent_is_killed_ends_after_its_command(start):
    process = start("sleeps 1", "sleeps 120")
    worker = _worker_of(process)
    process.kill()
    assert worker.exists()
    assert process.stdout.readline() == "done\n"
    _wait_until(lambda: not worker.exists())
    assert process.communicate(timeout=120) == ("", "")
