"""Allow only one live process to write the parts of a rank into a run folder.

The operating system frees the lock when the process ends, so a dead writer never keeps others out.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tenterhook.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: a process on another host counts as alive for so many seconds after it wrote a file
RECENT = 60.0
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


def is_held(folder: str) -> bool:
    """Return True if a live process has the lock of any rank on a local run folder.

    The lock is not tried, because this could keep a writer out. For a process on another host, the age of the newest
    file decides.
    """
    try:
        with os.scandir(folder) as entries:
            locks = [one for one in entries if one.name.startswith(".writer-") and one.is_file(follow_symlinks=False)]
        return any(_is_alive(lock.path, lock.stat(follow_symlinks=False)) for lock in locks)
    except OSError:
        return False


def _is_alive(path: str, about: os.stat_result) -> bool:
    """Return True if the process that wrote a lock file is alive."""
    # Opening and closing the file would give up a lock that this process holds.
    if any(os.path.samestat(about, os.fstat(held)) for held, _ in _held.values() if held >= 0):
        return True
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        holder = json.loads(os.read(descriptor, 500))
        host, process = holder["host"], int(holder["process"])
    except (ValueError, KeyError, TypeError):
        return False
    finally:
        os.close(descriptor)
    if host != os.uname().nodename:
        return time.time() - os.stat(os.path.dirname(path)).st_mtime < RECENT
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return process > 0


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
