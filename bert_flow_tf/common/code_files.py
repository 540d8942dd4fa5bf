"""Import the files in which users register their own parts."""

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
    """Import files that register couplings, networks, poolings, methods, tasks or families.

    A file `my_parts.py` becomes the module `my_parts`. Processes that this one starts import the
    same files.

    Args:
      paths: one or several files, separated as in PATH.

    Raises:
      ArgumentError: a file is missing, has the name of another module, or fails.
    """
    files = [pathlib.Path(path).resolve() for path in paths.split(os.pathsep) if path]
    for path in files:
        _import_file(path)
    if files:
        os.environ[VARIABLE] = os.pathsep.join(map(str, files))


def _import_file(path: pathlib.Path) -> None:
    if path.suffix != ".py" or not path.is_file():
        raise ArgumentError(f"code: found {path}, expected a Python file")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return
    spec = importlib.util.find_spec(path.stem) if known is None else known.__spec__
    # The file's own folder may be on the path.
    if spec is not None and spec.origin != str(path):
        raise ArgumentError(f"code: found {path}, whose name is that of another module")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a file that ends in .py has a loader"
    module = importlib.util.module_from_spec(spec)
    # The registries name a part by its module, so the module must be found there.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        last = traceback.extract_tb(error.__traceback__)[-1]
        line = last.lineno if last.filename == str(path) else "?"
        raise ArgumentError(
            f"code: {path}, line {line}: {type(error).__name__}: {error}"
        ) from error
