"""Import names at their first use, and TensorFlow quietly."""

import contextlib
import importlib
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

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


def import_name(name: str, modules: Mapping[str, str], names: dict[str, Any]) -> Any:
    """Import a package's name from its module, and keep it.

    A package's `__getattr__` calls this, because TensorFlow takes seconds to load. The next access
    finds the name without it.

    Args:
      modules: the module of each public name.
      names: the package's `globals()`.

    Raises:
      AttributeError: the package has no such name.
    """
    if name not in modules:
        raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
    with quiet_import():
        names[name] = getattr(importlib.import_module(modules[name]), name)
    return names[name]
