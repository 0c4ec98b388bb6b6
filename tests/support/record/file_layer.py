"""Record the file operations of a folder, and simulate a power failure before any of them.

The disk of the simulation is as bad as a real one may be. A file has the content that it had when it was last synced,
and is empty if it was never synced. The names in the folder are those of the last sync of the folder, or the current
ones: a disk may write names before the content of their files, or long after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

Names = Literal["synced", "current"]


class PowerFailure(BaseException):
    """Ends the program at the simulated power failure. No code handles it, so nothing is cleaned up."""


class FileLayer:
    """A layer under the functions of `os` that knows what is on the disk of one folder.

    `calls` lists the operations that change the folder, in order.
    """

    def __init__(self, folder: Path, fails_before: int | None = None) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self._fails_before = fails_before
        self._failed = False
        #: for each file by its number, the content on the disk
        self._content = {path.stat().st_ino: path.read_bytes() for path in self._files()}
        #: for each name on the disk, the number of its file
        self._names = self._current_names()

    @contextmanager
    def installed(self) -> Iterator[FileLayer]:
        """Replace the functions of `os` until the block ends."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "rename", "link", "unlink", "remove", "truncate", "mkdir"):
                patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
            patch.setattr(os, "open", self._opening(os.open))
            patch.setattr(os, "fsync", self._syncing(os.fsync))
            yield self

    def after_power_failure(self, names: Names) -> dict[str, bytes]:
        """Return the content of the folder, by name, that is on the disk if the power fails now."""
        there = self._names if names == "synced" else self._current_names()
        return {name: self._content.get(number, b"") for name, number in there.items()}

    def restart(self, into: Path, names: Names) -> Path:
        """Write what is on the disk after a power failure into another folder, and return that folder."""
        into.mkdir()
        for name, content in self.after_power_failure(names).items():
            (into / name).write_bytes(content)
        return into

    def _files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.is_file() and not path.is_symlink()]

    def _current_names(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self._files()}

    def _inside(self, path: Any) -> bool:
        return not isinstance(path, int) and Path(os.path.abspath(path)).is_relative_to(self.folder)

    def _begin(self, call: str) -> None:
        """Count an operation, or let the power fail before it."""
        self._failed = self._failed or len(self.calls) == self._fails_before
        if self._failed:
            raise PowerFailure
        self.calls.append(call)

    def _wrapped(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside(path):
                self._begin(name)
            return act(path, *args, **kwargs)

        return wrapped

    def _opening(self, act: Callable[..., int]) -> Callable[..., int]:
        def opening(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT and self._inside(path):
                self._begin("create")
            return act(path, flags, *args, **kwargs)

        return opening

    def _syncing(self, act: Callable[[int], None]) -> Callable[[int], None]:
        def syncing(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path == self.folder:
                self._begin("sync folder")
                self._names = self._current_names()
            elif self._inside(path):
                self._begin("sync file")
                self._content[os.fstat(descriptor).st_ino] = path.read_bytes()
            act(descriptor)

        return syncing
