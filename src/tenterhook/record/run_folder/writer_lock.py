"""Allow only one live process to write the parts of a rank into a run folder.

The operating system frees the lock when the process ends, so a dead writer never keeps others out.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tenterhook.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: descriptors of the locks that this process holds, and how many stores use each of them
_held: dict[str, tuple[int, int]] = {}


def acquire(folder: str, rank: int) -> str:
    """Lock a local run folder for a rank, and return the path of the lock.

    Several stores in one process share the lock. Raise a StoreError if another process holds it.
    """
    path = os.path.join(folder, f".writer-{rank}")
    descriptor, users = _held.get(path, (-1, 0))
    if not users:
        descriptor = _locked(path)
    _held[path] = descriptor, users + 1
    return path


def release(path: str) -> None:
    """Give up a lock, unless another store of this process uses it."""
    descriptor, users = _held.pop(path, (-1, 0))
    if users > 1:
        _held[path] = descriptor, users - 1
    elif descriptor >= 0:
        with suppress(OSError):
            os.unlink(path)  # before the lock is given up: `_locked` notices that the file is gone
        os.close(descriptor)


def _locked(path: str) -> int:
    """Open and lock a file. Return -1 if the filesystem has no locks."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with _typed(path):
            descriptor = os.open(path, flags, 0o666)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            os.close(descriptor)
            raise StoreError(
                f"{path} is not a regular file of its own, so it cannot be the lock of the run folder",
                remedy="delete it, or choose another folder",
            )
        try:
            if fcntl is not None:
                # This kind of lock is not inherited by forked processes, such as the workers of a data loader.
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 500).decode(errors="replace")
            os.close(descriptor)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return -1
            raise StoreError(
                f"another process writes to the run folder {os.path.dirname(path)}: {holder or 'unknown'}",
                remedy="choose another folder, or end that process",
            ) from error
        if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):
            break
        os.close(descriptor)  # the holder before us has deleted the file since we opened it
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps({"host": os.uname().nodename, "process": os.getpid()}).encode())
    return descriptor


@contextmanager
def _typed(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the run folder {os.path.dirname(path)} cannot be written to: {error}", remedy="choose another folder"
        ) from error


def _after_fork() -> None:
    """Forget the locks of the parent process in a forked process."""
    for descriptor, _ in _held.values():
        if descriptor >= 0:
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)
