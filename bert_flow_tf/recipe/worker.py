"""The process that runs the stages' commands, one after the other: TensorFlow and a frozen encoder are loaded once.

A command that fails ends it, with what it printed and its exit status, as a process of its own would end. Where nobody
is left to ask it for another, it ends after the command that it is in.
"""

import contextlib
import gc
import importlib
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from types import FrameType

import absl.logging

from bert_flow_tf.encoder.shared import sharing_encoders
from bert_flow_tf.errors import exit_status

# Seconds between two lines of progress.
_PATIENCE = 30.0


class Worker:
    """A context whose process starts with the first command, and is waited for at the context's end.

    Args:
      verbose: whether commands print their results and log their progress; else only warnings, errors, and where
        training is every half a minute.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._connection: Connection | None = None
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the process, with all that TensorFlow keeps of memory; another command starts a new one."""
        if self._connection is not None and self._process is not None:
            self._connection.close()
            self._process.wait()
            self._process = None

    def run(self, command: Sequence[str]) -> int:
        """Exit status of `python -m MODULE ARGUMENTS`, negative for a signal; not 0, it is that of the process.

        What asks this process to end asks that one, and is waited for.

        Raises:
          KeyboardInterrupt: this process was asked to end, by the signal that is its argument; the command has ended.
        """
        received = []

        def forward(number: int, frame: FrameType | None) -> None:
            received.append(number)
            self._send_signal(signal.SIGTERM if number == signal.SIGHUP else number)

        def suspend(number: int, frame: FrameType | None) -> None:
            self._send_signal(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            # Here the shell has continued this process.
            self._send_signal(signal.SIGCONT)

        handlers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT), forward)
        handlers[signal.SIGTSTP] = suspend
        # What is ignored, as under nohup, stays so.
        before = {
            n: signal.signal(n, handle) for n, handle in handlers.items() if signal.getsignal(n) != signal.SIG_IGN
        }
        try:
            if self._process is None:
                self._start()
            if received:
                self._send_signal(signal.SIGTERM)
            status = self._status_of(command)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if received:
            raise KeyboardInterrupt(received[0])
        return status

    def _start(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            descriptor = theirs.fileno()
            # In a session of its own: what the terminal sends reaches it once, through here.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(descriptor), *(["verbose"] if self._verbose else [])],
                pass_fds=(descriptor,),
                start_new_session=True,
            )

    def _send_signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _status_of(self, command: Sequence[str]) -> int:
        assert self._connection is not None and self._process is not None
        try:
            self._connection.send(command)
            self._connection.recv()
        except (EOFError, ConnectionError):
            return self._process.wait()
        return 0


def main(arguments: Sequence[str]) -> int:
    """Exit status of the process; its arguments are the descriptor of its end of the pipe, and `verbose` or nothing."""
    if len(arguments) == 1:
        _say_little()
    with Connection(int(arguments[0])) as connection, sharing_encoders():
        for _, _, module, *rest in _commands(connection):
            status = importlib.import_module(module).run_command(rest)
            sys.stdout.flush()
            if status:
                return status
            # What the command leaves: else it would be there beside what the next one makes.
            gc.collect()
    return 0


def _say_little() -> None:
    """Drops what commands print, and of what they log all but warnings and a line of progress now and then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    said = time.monotonic()

    def is_due(record: logging.LogRecord) -> bool:
        nonlocal said
        if record.levelno >= logging.WARNING:
            return True
        if record.module != "callbacks" or time.monotonic() - said < _PATIENCE:
            return False
        said = time.monotonic()
        return True

    handler = absl.logging.get_absl_handler()
    handler.addFilter(is_due)
    # Without where and when.
    handler.setFormatter(logging.Formatter("%(message)s"))


def _commands(connection: Connection) -> Iterator[Sequence[str]]:
    """Yields the commands that the other end asks for, and answers each when it is done."""
    # Whoever asked has ended.
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            yield connection.recv()
            connection.send(None)


if __name__ == "__main__":
    sys.exit(exit_status(main, sys.argv[1:]))
