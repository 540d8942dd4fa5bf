"""Import TensorFlow without its messages."""

import contextlib
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator

# Two threads that redirect stderr at once would leave it redirected.
_LOCK = threading.RLock()


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Hide stderr while TensorFlow loads; show it after an exception."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if sys.stderr is None:
        yield
        return
    with (
        _LOCK,
        warnings.catch_warnings(),
        tempfile.TemporaryFile() as hidden,
        open(os.dup(2), "wb", buffering=0) as stderr,
    ):
        os.dup2(hidden.fileno(), 2)
        try:
            yield
        except BaseException:
            hidden.seek(0)
            stderr.write(hidden.read())
            raise
        finally:
            os.dup2(stderr.fileno(), 2)
