"""Import a package's names when they are used, and TensorFlow quietly."""

import contextlib
import os
import pkgutil
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

# Two threads that change the filters at once would leave them changed.
_LOCK = threading.RLock()


def ignore_import_warnings() -> None:
    """Ignore two warnings of TensorFlow's imports, about Python and setuptools."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Hide TensorFlow's log and two warnings of its imports."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _LOCK, warnings.catch_warnings():
        ignore_import_warnings()
        yield


def import_name(name: str, modules: Mapping[str, str], names: dict[str, Any]) -> Any:
    """Import a name from its module, and keep it in the package.

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
        names[name] = pkgutil.resolve_name(f"{modules[name]}.{name}")
    return names[name]
