"""Write what is still in memory when the process receives SIGTERM, before the process ends."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol

from tenterhook.record.containment import call_and_report


class WritesOnSigterm(Protocol):
    """An object that writes what it has in memory when the process receives SIGTERM.

    The program may handle SIGTERM itself and go on, so the object must still work afterwards.
    """

    def on_sigterm(self) -> None: ...


_watching: weakref.WeakSet[WritesOnSigterm] = weakref.WeakSet()
#: the handler that our handler replaced; empty if our handler is not installed
_before: list[Any] = []


def watch(one: WritesOnSigterm) -> None:
    """Call `one.on_sigterm` when the process receives SIGTERM. Only the main thread can install the handler."""
    _watching.add(one)
    weakref.finalize(one, _restore_if_unused)
    if not _before and threading.current_thread() is threading.main_thread():
        _before.append(signal.signal(signal.SIGTERM, _handle))


def unwatch(one: WritesOnSigterm) -> None:
    """Undo `watch`. The handler of the program is restored with the last object."""
    _watching.discard(one)
    _restore_if_unused()


def _restore_if_unused() -> None:
    if list(_watching):  # list() skips objects that were freed; bool() may still count them
        return
    if _before and threading.current_thread() is threading.main_thread():
        before = _before.pop()
        if signal.getsignal(signal.SIGTERM) is _handle:
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _handle(number: int, frame: FrameType | None) -> None:
    for one in list(_watching):
        call_and_report("writing at SIGTERM", one.on_sigterm)
    before = _before[-1] if _before else signal.SIG_DFL
    if callable(before):
        before(number, frame)
    elif before != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
