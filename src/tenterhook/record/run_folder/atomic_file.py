"""Write a file completely or not at all, and never through a link."""

from __future__ import annotations

import os
import secrets


def write_file(path: str | os.PathLike[str], data: bytes, *, new: bool = False) -> None:
    """Write a file under a temporary name, and rename it when its content is on the disk.

    A link with the name of the file is replaced, and the file that it points to is left alone. If `new` is True, raise
    a FileExistsError instead of replacing a file.
    """
    path = os.fspath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name[-100:]}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(temporary, path)
        else:
            os.replace(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)
    try:
        _sync_folder(folder or ".")
    except OSError:
        if new:  # the caller counts the file as not written
            os.unlink(path)
        raise


def _sync_folder(path: str) -> None:
    """Make sure that a new name is on the disk, so that the file is there after a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
