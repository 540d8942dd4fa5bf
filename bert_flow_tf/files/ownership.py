"""One owner of a place at a time: a lock that ends with its process, and the removal of what a killed owner left.

A place is a file or folder that is written as a whole, or a run's folder. Its owner holds `.NAME.bert_flow_lock` beside
it; what it writes before the place gets its name is called `.NAME.XXXXXXXX.bert_flow_part`. What a killed owner left of
both goes when somebody next owns a place in the same folder.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import logging
import os
import pathlib
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.reading import read_file
from bert_flow_tf.files.remote import refuse_address

# Seconds after which a lease that was not renewed is of a dead owner.
LEASE = 60.0
# In a folder of the name of a part: what was there, while it is being replaced.
OLD = "old"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_LEFT = re.compile(r"\.(.+?)(\.[0-9a-f]{8}\.bert_flow_part|\.bert_flow_(lock|lease))")


@dataclasses.dataclass
class Owned:
    """A place that this process owns; `found` is the identity of what was there when it began to, None for nothing."""

    found: tuple[int, int, int] | None


# By the thread, since a place that one thread owns is another's no more than another process's.
_owned: dict[tuple[int, pathlib.Path], Owned] = {}


def resolved(path: str | os.PathLike) -> pathlib.Path:
    """The absolute path, links followed; a `UserError` where there is none."""
    try:
        return pathlib.Path(path).resolve()
    except RuntimeError as error:
        raise UserError(f"{path}: found a link to itself, expected a place to write to") from error
    except OSError as error:
        # The current directory was removed.
        raise UserError(f"{path}: cannot be found ({error.strerror}), expected a place to write to") from error


@contextlib.contextmanager
def owned(path: str | os.PathLike, *, wait: bool = False) -> Iterator[Owned]:
    """A context in which nobody else owns the place; within it this thread may ask for the place again.

    What killed owners left beside it is removed first. Folders above the place are made, and those that stay empty
    removed again.

    Args:
      path: the place, which need not exist.
      wait: whether to wait until its owner ends.

    Raises:
      UserError: another process owns the place and `wait` is false, or no file can be made beside it.
    """
    refuse_address(path, str(path))
    # Where links lead: a place has one name.
    path = resolved(path)
    key = threading.get_ident(), path
    if key in _owned:
        yield _owned[key]
        return
    # Not `Path.exists`, which raises where it may not look.
    made = [folder for folder in path.parents if not os.path.exists(folder)]
    make_directory(path.parent)
    try:
        release = _lock(path, wait)
        try:
            sweep(path.parent, path)
            if path.is_dir():
                sweep(path)
            _owned[key] = Owned(identity(path))
            yield _owned[key]
        finally:
            _owned.pop(key, None)
            release()
    finally:
        # Those that are not empty stay.
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def make_directory(path: str | os.PathLike) -> None:
    """Makes a directory and those above it, unless they exist.

    Raises:
      UserError: a file is in the way, or the place cannot be written to.
    """
    try:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be made ({error.strerror}), expected a place for a directory") from error


def identity(path: pathlib.Path) -> tuple[int, int, int] | None:
    """What tells the file or folder at this path from any other that may come in its place; None for nothing."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


@contextlib.contextmanager
def unchanged(path: pathlib.Path) -> Iterator[None]:
    """A context in which a folder is read that another process may replace; `path` is a file that is written with it.

    Raises:
      UserError: at its end, which may be a `UserError` for what was half there, the file is not the one that was there
        at its beginning.
    """

    def found() -> tuple[int, int] | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = path.lstat()
            # Not the contents' time, which a copy keeps; an inode's number may be given again.
            return status.st_ino, status.st_ctime_ns
        return None

    before, refused = found(), None
    try:
        yield
    except UserError as error:
        refused = error
    if found() != before:
        raise UserError(
            f"{path}: another process replaced or removed it while it was read, expected one that stays; try again"
        ) from refused
    if refused is not None:
        raise refused


def part_of(path: pathlib.Path, token: str | None = None) -> pathlib.Path:
    """A new name for what is written before the place gets its own; `token`, 8 hexadecimal digits, makes it."""
    return path.with_name(f".{path.name}.{token or secrets.token_hex(4)}.bert_flow_part")


def is_lock(path: pathlib.Path) -> bool:
    """Whether a file is the lock of a place."""
    return path.suffix in (".bert_flow_lock", ".bert_flow_lease")


def sweep(folder: pathlib.Path, owned_place: pathlib.Path | None = None) -> None:
    """Removes what killed owners of places in the folder left; what they were replacing is there again.

    A place that somebody living owns is left alone, but for `owned_place`, which the caller owns; so is what may not be
    removed, as another user's.
    """
    names = {match[1] for path in folder.iterdir() if (match := _LEFT.fullmatch(path.name))}
    for place in [folder / name for name in names]:
        with contextlib.suppress(OSError):
            release = None if place == owned_place else _try_lock(_lock_of(place))
            if release is None and place != owned_place:
                continue
            try:
                # Listed when it is locked: what was there before may be gone, with a living owner.
                part = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{8}}\.bert_flow_part")
                for path in [path for path in folder.iterdir() if part.fullmatch(path.name)]:
                    if os.path.lexists(path / OLD) and not os.path.lexists(place):
                        (path / OLD).rename(place)
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            finally:
                if release is not None:
                    release()


def _lock_of(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.bert_flow_lock")


def _lock(path: pathlib.Path, wait: bool) -> Callable[[], None]:
    """Locks the place; gives the function that releases it."""
    lock = _lock_of(path)
    # Whoever sweeps holds a lock for a moment.
    patience = time.monotonic() + 1
    has_said = False
    while True:
        try:
            release = _try_lock(lock)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and time.monotonic() < patience:
                # Another process made the folder too, and removed it again, empty.
                make_directory(path.parent)
                continue
            raise UserError(
                f"{path.parent}: cannot be written to ({error.strerror}), expected a place for {path.name}"
            ) from error
        if release is not None:
            return release
        if time.monotonic() > patience:
            if not wait:
                raise UserError(f"{path}: {_owner(lock)} is using it, expected no other process; wait for it to end")
            if not has_said:
                logging.info("Waiting for %s, which is using %s", _owner(lock), path)
                has_said = True
        time.sleep(0.1)


def _try_lock(lock: pathlib.Path) -> Callable[[], None] | None:
    """The function that releases the lock, None where another process holds it."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        if not lock.exists():
            raise
        # Another user's can still be locked.
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        if error.errno not in _NO_LOCKS:
            raise
        lock.unlink(missing_ok=True)
        return _try_lease(lock.with_suffix(".bert_flow_lease"))

    def release() -> None:
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(descriptor)

    # Its last owner may have removed the file after it was opened here.
    found = identity(lock)
    if found is None or found[1] != os.fstat(descriptor).st_ino:
        os.close(descriptor)
        return _try_lock(lock)
    # The lock holds without its text, too: on a full disk what fills it can still be swept.
    with contextlib.suppress(OSError):
        os.truncate(descriptor, 0)
        os.write(descriptor, _this_process())
    return release


def _try_lease(lease: pathlib.Path) -> Callable[[], None] | None:
    """As `_try_lock`, on file systems without locks: a file that its owner touches as long as it lives."""
    try:
        descriptor = os.open(lease, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        _remove_stale(lease)
        return None
    with contextlib.suppress(OSError):
        os.write(descriptor, _this_process())
    inode = os.fstat(descriptor).st_ino
    os.close(descriptor)
    ended = threading.Event()

    def is_ours() -> bool:
        found = identity(lease)
        return found is not None and found[1] == inode

    def renew() -> None:
        while not ended.wait(LEASE / 6):
            with contextlib.suppress(OSError):
                if is_ours():
                    os.utime(lease)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()

    def release() -> None:
        ended.set()
        thread.join()
        with contextlib.suppress(OSError):
            if is_ours():
                lease.unlink()

    return release


def _remove_stale(lease: pathlib.Path) -> None:
    """Removes a lease that was not renewed, by a name of its own: of two that do this, one finds nothing to rename."""
    part = part_of(lease)
    with contextlib.suppress(FileNotFoundError):
        part.touch()
        # The file system's clock, not this host's.
        now = part.stat().st_mtime
        found = identity(lease)
        if found is not None and now - lease.stat().st_mtime > LEASE:
            lease.rename(part)
            if identity(part) != found and not lease.exists():
                part.rename(lease)
    part.unlink(missing_ok=True)


def _this_process() -> bytes:
    now = datetime.datetime.now(datetime.timezone.utc)
    return json.dumps(
        {"host": socket.gethostname(), "pid": os.getpid(), "since": f"{now:%Y-%m-%d %H:%M:%S} UTC"}
    ).encode()


class _Owner(msgspec.Struct):
    host: str
    pid: int
    since: str


def _owner(lock: pathlib.Path) -> str:
    """The owner of a lock in words."""
    for path in (lock, lock.with_suffix(".bert_flow_lease")):
        # A lock that is being released, or not written yet, says nothing.
        with contextlib.suppress(UserError, ValueError, RecursionError):
            owner = msgspec.json.decode(read_file(path, "a lock", most=1 << 16), type=_Owner)
            return f"process {owner.pid} on {owner.host} (since {owner.since})"
    return "another process"
