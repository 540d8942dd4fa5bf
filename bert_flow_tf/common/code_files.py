"""Import the files that hold a user's own parts."""

import importlib.util
import os
import pathlib
import sys
import traceback

from bert_flow_tf.common.errors import ArgumentError

# The scripts and the processes that a command starts inherit it; several files are separated as
# in PATH.
VARIABLE = "BERT_FLOW_CODE"


def import_code(paths: str) -> None:
    """Import files of couplings, networks, poolings, methods, tasks or families.

    A file `my_parts.py` becomes the module `my_parts`. Processes that this one starts import the
    same files.

    Args:
      paths: one or several files, separated as in PATH.

    Raises:
      ArgumentError: a file is missing, has the name of no module or of another one, or fails.
    """
    files = [pathlib.Path(path).resolve() for path in paths.split(os.pathsep) if path]
    for path in files:
        _import_file(path)
    if files:
        os.environ[VARIABLE] = os.pathsep.join(map(str, files))


def import_inherited_code() -> None:
    """Import the files of the process that started this one."""
    import_code(os.environ.get(VARIABLE, ""))


def _import_file(path: pathlib.Path) -> None:
    name = path.stem
    if path.suffix != ".py" or not path.is_file():
        raise ArgumentError(f"code: found {path}, expected a Python file")
    if not name.isidentifier():
        expected = "expected a file name of letters, digits and underscores, before .py"
        raise ArgumentError(f"code: found {path}, {expected}")
    # The file's own folder may be on the path.
    known = importlib.util.find_spec(name)
    if known is not None and known.origin != str(path):
        raise ArgumentError(f"code: found {path}, whose name is that of another module")
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    # A part is found by its module's name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f", line {frame.lineno}" for frame in frames if frame.filename == str(path)]
        raise ArgumentError(
            f"code: {path}{''.join(lines[-1:])}: {type(error).__name__}: {error}"
        ) from error
