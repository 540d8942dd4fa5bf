"""Parts of one's own, classes and functions, by `module:name`.

A file keeps a part's path. Whoever loads the file has imported the module before, because loading
imports nothing by itself.
"""

import hashlib
import inspect
import operator
import pathlib
import re
import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from glow.user_warnings import warn_user

_PATH = re.compile(r"[\w.]+:[\w.]+")
# The SHA-256 of each part's file when the part was first looked up; "" for a file that is no longer
# what was imported.
_DIGESTS: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()


def is_part_path(name: str) -> bool:
    """True if a name has the form `module:name`."""
    return _PATH.fullmatch(name) is not None


def part_path(part: Any) -> str:
    """Return `module:name` of a class or function.

    Those of a lambda, of a function inside another one, or of another object resolve to nothing.
    """
    name = getattr(part, "__qualname__", None)
    return repr(part) if name is None else f"{part.__module__}:{name}"


def resolve_part(path: str) -> Any:
    """Return the class or function of an imported module.

    Raises:
      ValueError: the module is not imported, or does not define it.
    """
    module_name, _, name = path.partition(":")
    module = sys.modules.get(module_name)
    if module is None:
        advice = f"import {module_name} first, or give --code FILE.py"
        raise ValueError(f"found {path}, whose module is not imported; {advice}")
    try:
        part = operator.attrgetter(name)(module)
    except AttributeError:
        part = None
    # A file that names a function of the standard library must not make a program call it.
    is_own = module_name.partition(".")[0] not in sys.stdlib_module_names
    # A part has one path, so that its module's code is its own.
    if not is_own or part_path(part) != path:
        raise ValueError(f"found {path}, expected a class or function that {module_name} defines")
    file = pathlib.Path(getattr(module, "__file__", None) or "")
    if part not in _DIGESTS and file.is_file():
        source = file.read_bytes()
        is_loaded = _is_loaded(module, source)
        _DIGESTS[part] = hashlib.sha256(source).hexdigest() if is_loaded else ""
    return part


def _is_loaded(module: types.ModuleType, source: bytes) -> bool:
    """True if a module's functions are those of a source."""
    compiler = getattr(module.__loader__, "source_to_code", None)
    if compiler is None:
        # pytest, for example, changes the code of tests while it loads them.
        return True
    try:
        present = {*_codes(compiler(source, module.__file__))}
    except SyntaxError:
        return False
    own = [
        one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__
    ]
    functions = [
        function
        for one in own
        for function in (vars(one).values() if inspect.isclass(one) else [one])
        if inspect.isfunction(function) and function.__code__.co_filename == module.__file__
    ]
    return all(function.__code__ in present for function in functions)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and those in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _codes(one)


def code_digest(part: Any) -> str:
    """Return the SHA-256 of a part's file, as it was imported.

    Without a file, it is that of the part's source. What the file imports does not count. An edit
    after the import that changes no line of a function, before the part is first looked up, is not
    noticed.

    Args:
      part: a path; an object without one is refused.

    Raises:
      ValueError: another process could not import the part, its file has changed since the
        import, or it has no source.
    """
    path = part if isinstance(part, str) else ""
    module_name = path.partition(":")[0]
    if module_name in ("", "__main__"):
        found = path.removeprefix("__main__:") or part_path(part)
        advice = "put it into a module of its own, which another process can import"
        raise ValueError(f"found {found}; {advice}")
    found = resolve_part(path)
    if (digest := _DIGESTS.get(found)) is not None:
        if not digest:
            advice = "load it again, or start a new process"
            raise ValueError(f"found {path}, whose file has changed since its import; {advice}")
        return digest
    try:
        code = inspect.getsource(found).encode()
    except (OSError, TypeError) as error:
        raise ValueError(f"found {path}, whose source cannot be read: {error}") from error
    return hashlib.sha256(code).hexdigest()


def warn_if_changed(saved: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Warn of paths whose digest is not that of a saved model."""
    changed = {path for path, digest in present.items() if saved.get(path, digest) != digest}
    if modules := sorted({path.partition(":")[0] for path in changed}):
        found = ", ".join(modules)
        warn_user(f"{found}: the code has changed since the model was saved; vectors may differ")
