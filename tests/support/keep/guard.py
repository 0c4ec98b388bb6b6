"""Watch a call for operations that a reader of data must not do, and measure its cost.

An audit hook cannot be removed, so this must run in a separate process.
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
#: limit of the characters of a message, since it goes to a log
MESSAGE = 8192
#: the process ends if a call takes more than this many seconds
HANG = 60

#: audit events that only read memory: an object's address, a function's code
HARMLESS = ("builtins.id", "object.__getattr__")

PACKAGE = Path(tenterhook.__file__).parent

#: functions that the audit hook does not see: imports of loaded modules, and files that C++ code opens
TRAPS: list[tuple[Any, str]] = [
    (importlib, "import_module"), (importlib, "reload"), (pickle, "load"), (pickle, "loads"), (torch, "load"),
    (torch, "save"), (torch, "from_file"), (torch.jit, "load"), (torch.hub, "load"), (operator, "attrgetter"),
    (operator, "methodcaller"),
]  # fmt: skip


@dataclass
class Outcome:
    """Describe the result of one call."""

    value: Any = None
    error: BaseException | None = None
    said: str = ""
    #: processor time of this thread
    seconds: float = 0.0
    #: increase of the peak resident memory, in bytes
    memory: int = 0
    #: executed code, imported modules, opened files and sockets, warnings
    breaches: list[str] = field(default_factory=list)


class Guard:
    """Watch calls, one after the other. Create only one guard in a process."""

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
        gc.freeze()  # makes the collection before each call fast

    def watch(self, call: Callable[[], Any], *, reading: Path | None = None) -> Outcome:
        """Make the call. It may open only the file `reading`, and only to read it."""
        found = Outcome()
        self._breaches, self._readable = found.breaches, reading
        gc.collect()
        self._libc.malloc_trim(0)  # otherwise the call could reuse freed memory without being measured
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
        """Return the peak resident memory since the last reset, in bytes."""
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
        """Allow an import inside a function if the source names the module and the module is already loaded."""
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
    """Return every module that an import statement in the package's source names."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    return found


def faults(found: Outcome) -> list[str]:
    """List what is wrong with the way in which hostile data was refused."""
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
