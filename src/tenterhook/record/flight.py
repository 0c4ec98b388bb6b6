"""The flight recorder: the last steps in memory, and written out when something goes wrong."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

from tenterhook.record.rows import Batch
from tenterhook.record.store import Folder, Store
from tenterhook.record.suspects import Scene, Suspect, rank

REPORT = "flight.json"


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: where, why, and who is suspected, the likeliest first."""

    path: str
    step: int
    reason: str
    suspects: tuple[Suspect, ...]

    def __str__(self) -> str:
        lines = [f"step {self.step}: {self.reason}"]
        lines += [f"  {s.kind:9} {s.target} at {s.point}: {s.why}" for s in self.suspects]
        return "\n".join([*lines, f"  {self.path}"])


class Flight:
    """A sink that keeps the last steps and writes nothing, until a trigger trips, an error ends the training, or
    the process is told to end (SIGTERM). Then the steps are a run folder under `path`, with `flight.json`."""

    def __init__(self, path: str | os.PathLike[str], *, steps: int = 64) -> None:
        self.path = os.fspath(path)
        self.steps = steps
        self.reports: list[Written] = []
        self._batches: deque[Batch] = deque(maxlen=steps)
        self._scene: Callable[[], Scene | None] = lambda: None
        self._written = -1
        self._writing: list[threading.Thread] = []
        Folder(path)  # what is missing is better said now
        self._process = os.getpid()

    # -- as the rig calls it -----------------------------------------------------------------------------------------

    def begin(self, scene: Callable[[], Scene | None]) -> None:
        """`scene` says what the rig knows; it must not hold the rig."""
        self._scene = scene
        self._batches.clear()
        self._written = -1
        _flights.add(self)
        _listen()
        weakref.finalize(self, _forgotten)

    def put(self, batch: Batch) -> None:
        self._batches.append(batch)

    def trip(self, reason: str) -> None:
        """Write, on a thread of its own; once for each `steps` steps."""
        step = self._batches[-1].step if self._batches else 0
        if self._written >= 0 and step < self._written + self.steps:
            return
        self._written = step
        made = self._taken(reason)
        thread = threading.Thread(target=self._write, args=made, name="tenterhook: flight")
        self._writing.append(thread)
        thread.start()

    def fail(self, reason: str) -> None:
        """Write now: nobody can say for how long the process is there."""
        # A forked process, a loader's worker say, is told to end when nothing is wrong.
        if self._batches and self._batches[-1].step != self._written and os.getpid() == self._process:
            self._written = self._batches[-1].step
            self._write(*self._taken(reason))

    def catch_up(self, timeout: float) -> bool:
        """Wait until what it began to write is there; whether it is."""
        for thread in self._writing:
            thread.join(timeout)
        self._writing = [thread for thread in self._writing if thread.is_alive()]
        return not self._writing

    def close(self) -> None:
        self.catch_up(2.0)
        _flights.discard(self)
        if not _flights:
            _listen_no_more()

    # -- writing -----------------------------------------------------------------------------------------------------

    def _taken(self, reason: str) -> tuple[str, list[Batch], Scene]:
        try:
            scene = self._scene()
        except Exception as error:  # it must not break training
            warnings.warn(f"tenterhook: the flight recorder knows less than it should: {error!r}", stacklevel=2)
            scene = None
        return reason, list(self._batches), scene or Scene()

    def _write(self, reason: str, batches: list[Batch], scene: Scene) -> None:
        try:
            step = batches[-1].step if batches else 0
            path = self._free(f"{self.path}/step-{step:08}")
            report = Written(path, step, reason, tuple(rank(batches, scene)))
            store = Store(path)
            store.write(batches)
            Folder(path).write(REPORT, json.dumps(asdict(report), indent=1).encode())
        except Exception as error:  # it must not break training
            warnings.warn(f"tenterhook: the flight recorder could not write: {error!r}", stacklevel=2)
            return
        self.reports.append(report)

    @staticmethod
    def _free(path: str) -> str:
        """What an earlier run has left is evidence, too."""
        number, free = 1, path
        while Folder(free).names():
            number += 1
            free = f"{path}-{number}"
        return free


_flights: weakref.WeakSet[Flight] = weakref.WeakSet()


#: what was there before, if it is ours now
_before: list[Any] = []


def _listen() -> None:
    if not _before and threading.current_thread() is threading.main_thread():
        _before.append(signal.signal(signal.SIGTERM, _told_to_end))


def _listen_no_more() -> None:
    if _before and threading.current_thread() is threading.main_thread():
        before = _before.pop()
        if signal.getsignal(signal.SIGTERM) is _told_to_end:
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _forgotten() -> None:
    if not list(_flights):  # the set may not yet know that one is gone
        _listen_no_more()


def _told_to_end(number: int, frame: FrameType | None) -> None:
    for flight in list(_flights):
        flight.fail("the process was told to end (SIGTERM)")
    before = _before[-1] if _before else signal.SIG_DFL
    if callable(before):
        before(number, frame)
    elif before != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _at_the_end() -> None:
    """The interpreter ends; after an error that nobody caught it still has it."""
    error = getattr(sys, "last_value", None)
    for flight in list(_flights) if error is not None else ():
        flight.fail(f"the program ended with {type(error).__name__}: {error}")


atexit.register(_at_the_end)
