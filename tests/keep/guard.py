"""The guard: watches one call for what a reader of data must never do, and measures what it costs.

An audit hook cannot be taken out again, so this runs in a process of its own.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import faulthandler
import gc
import importlib
import operator
import os
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import tenterhook

SECONDS = 0.05
MEMORY = 16 << 20
#: characters of a message, which goes to a log
MESSAGE = 8192
#: a call that has not come back after as many seconds is given up, and the process with it
HANG = 60

#: events of reading what is in memory: an object's address, a function's code
HARMLESS = ("builtins.id", "object.__getattr__")

PACKAGE = Path(tenterhook.__file__).parent

#: what the audit hook does not see: it knows of no import of what is loaded already, and of no file that C++ opens
TRAPS: list[tuple[Any, str]] = [
    (importlib, "import_module"), (importlib, "reload"), (pickle, "load"), (pickle, "loads"), (torch, "load"),
    (torch, "save"), (torch, "from_file"), (torch.jit, "load"), (torch.hub, "load"), (operator, "attrgetter"),
    (operator, "methodcaller"),
]  # fmt: skip


@dataclass
class Outcome:
    """What one call did."""

    value: Any = None
    error: BaseException | None = None
    said: str = ""
    #: of this thread's processor time
    seconds: float = 0.0
    #: the most that was resident, above what was before
    memory: int = 0
    #: code that ran, modules imported, files and sockets opened, warnings
    breaches: list[str] = field(default_factory=list)


class Guard:
    """Watches calls, one after the other. Made once in a process."""

    def __init__(self) -> None:
        self._watching = False
        self._readable: Path | None = None
        self._breaches: list[str] = []
        self._written = _literal_imports()
        self._import = builtins.__import__
        self._libc = ctypes.CDLL(None)
        self._reset = os.open("/proc/self/clear_refs", os.O_WRONLY)
        builtins.__import__ = self._importing
        for owner, name in TRAPS:
            setattr(owner, name, self._trap(f"{owner.__name__}.{name}", getattr(owner, name)))
        sys.addaudithook(self._audit)
        gc.collect()
        gc.freeze()  # so that collecting before each call is quick

    def watch(self, call: Callable[[], Any], *, reading: Path | None = None) -> Outcome:
        """Make the call; `reading` is the one file it may open, to read."""
        found = Outcome()
        self._breaches, self._readable = found.breaches, reading
        gc.collect()
        self._libc.malloc_trim(0)  # what was freed before must not be handed out again unseen
        before = self._peak(reset=True)
        faulthandler.dump_traceback_later(HANG, exit=True)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            self._watching, start = True, time.thread_time()
            try:
                found.value = call()
            except BaseException as error:
                found.error, found.said = error, str(error)
            finally:
                found.seconds = time.thread_time() - start
                self._watching = False
        faulthandler.cancel_dump_traceback_later()
        found.memory = self._peak() - before
        found.breaches += [f"warned: {w.message}"[:200] for w in warned]
        return found

    def _peak(self, *, reset: bool = False) -> int:
        """The most that was resident since the last reset, in bytes."""
        if reset:
            os.write(self._reset, b"5")
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no VmHWM")

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event in HARMLESS or (event == "open" and self._reads(*args)):
            return
        self._breaches.append(f"{event} {args!r}"[:200])

    def _reads(self, path: Any, mode: Any, flags: int) -> bool:
        return self._readable is not None and path == str(self._readable) and flags & os.O_ACCMODE == os.O_RDONLY

    def _importing(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        """An import inside a function is no breach if the source says it in so many words and it is loaded already."""
        if self._watching and not level:
            by = (globals or {}).get("__name__", "")
            ours = by.partition(".")[0] == tenterhook.__name__
            if name not in sys.modules or (ours and name not in self._written):
                self._breaches.append(f"import {name!r} by {by!r}"[:200])
        return self._import(name, globals, locals, fromlist, level)

    def _trap(self, name: str, real: Any) -> Any:
        def trapped(*args: Any, **options: Any) -> Any:
            if self._watching:
                self._breaches.append(f"{name}{args!r}"[:200])
            return real(*args, **options)

        return trapped


def _literal_imports() -> set[str]:
    """Every module that the package's source imports by a name written there."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return found


def faults(found: Outcome) -> list[str]:
    """What is wrong with the way in which something hostile was refused; empty if nothing is."""
    said = list(found.breaches)
    if found.error is None:
        said.append("accepted")
    elif not isinstance(found.error, tenterhook.TenterhookError):
        said.append(f"untyped: {type(found.error).__name__}: {found.said[:200]}")
    elif isinstance(found.error.__cause__, Exception):
        said.append(f"two errors: {type(found.error.__cause__).__name__} beneath")
    if len(found.said) > MESSAGE:
        said.append(f"a message of {len(found.said)} characters")
    if not found.said.replace("\n", "").isprintable():
        said.append("a message with characters that cannot be printed")
    if found.seconds > SECONDS:
        said.append(f"took {found.seconds * 1000:.0f} ms")
    if found.memory > MEMORY:
        said.append(f"took {found.memory / (1 << 20):.1f} MiB")
    return said
