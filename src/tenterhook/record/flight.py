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

from tenterhook.record.folder import Folder
from tenterhook.record.rows import Batch
from tenterhook.record.store import Store
from tenterhook.record.suspects import ModelSnapshot, Suspect, rank_suspects

REPORT = "flight.json"


@dataclass(frozen=True, slots=True)
class FlightReport:
    """What a flight recorder wrote: where, why, and who is suspected, the likeliest first."""

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
        self.reports: list[FlightReport] = []
        self._batches: deque[Batch] = deque(maxlen=steps)
        self._snapshot: Callable[[], ModelSnapshot | None] = lambda: None
        #: the step of the last report
        self._written = -1
        self._writing: list[threading.Thread] = []
        Folder(path)  # raises now if pyarrow is missing
        self._process = os.getpid()

    # -- as the rig calls it -----------------------------------------------------------------------------------------

    def begin(self, snapshot: Callable[[], ModelSnapshot | None]) -> None:
        """Start anew for a rig; `snapshot` returns what the rig knows, and must not hold the rig."""
        self._snapshot = snapshot
        self._batches.clear()
        self._written = -1
        _flights.add(self)
        _install_handler()
        weakref.finalize(self, _restore_handler_if_unused)

    def record(self, batch: Batch) -> None:
        """Keep a step; the oldest is dropped."""
        self._batches.append(batch)

    def trip(self, reason: str) -> None:
        """Write on a thread of its own, at most once in `steps` steps."""
        step = self._batches[-1].step if self._batches else 0
        if self._written >= 0 and step < self._written + self.steps:
            return
        self._written = step
        evidence = self._evidence(reason)
        thread = threading.Thread(target=self._write, args=evidence, name="tenterhook: flight")
        self._writing.append(thread)
        thread.start()

    def fail(self, reason: str) -> None:
        """Write now: the process may end at any moment."""
        # A forked process, such as a loader's worker, is terminated when nothing is wrong.
        if self._batches and self._batches[-1].step != self._written and os.getpid() == self._process:
            self._written = self._batches[-1].step
            self._write(*self._evidence(reason))

    def catch_up(self, timeout: float) -> bool:
        """Wait until what it began to write is written; return True if it is."""
        for thread in self._writing:
            thread.join(timeout)
        self._writing = [thread for thread in self._writing if thread.is_alive()]
        return not self._writing

    def close(self) -> None:
        self.catch_up(2.0)
        _flights.discard(self)
        if not _flights:
            _restore_handler()

    # -- writing -----------------------------------------------------------------------------------------------------

    def _evidence(self, reason: str) -> tuple[str, list[Batch], ModelSnapshot]:
        try:
            snapshot = self._snapshot()
        except Exception as error:  # it must not break training
            warnings.warn(f"tenterhook: the flight recorder knows less than it should: {error!r}", stacklevel=2)
            snapshot = None
        return reason, list(self._batches), snapshot or ModelSnapshot()

    def _write(self, reason: str, batches: list[Batch], snapshot: ModelSnapshot) -> None:
        try:
            step = batches[-1].step if batches else 0
            path = self._unused(f"{self.path}/step-{step:08}")
            report = FlightReport(path, step, reason, tuple(rank_suspects(batches, snapshot)))
            store = Store(path)
            store.write(batches)
            Folder(path).write(REPORT, json.dumps(asdict(report), indent=1).encode())
        except Exception as error:  # it must not break training
            warnings.warn(f"tenterhook: the flight recorder could not write: {error!r}", stacklevel=2)
            return
        self.reports.append(report)

    @staticmethod
    def _unused(path: str) -> str:
        """Return a folder's path that is not in use: what an earlier run left is evidence, too."""
        number, free = 1, path
        while Folder(free).names():
            number += 1
            free = f"{path}-{number}"
        return free


_flights: weakref.WeakSet[Flight] = weakref.WeakSet()
#: the handler of SIGTERM that ours replaced, while ours is installed
_before: list[Any] = []


def _install_handler() -> None:
    if not _before and threading.current_thread() is threading.main_thread():
        _before.append(signal.signal(signal.SIGTERM, _on_sigterm))


def _restore_handler() -> None:
    if _before and threading.current_thread() is threading.main_thread():
        before = _before.pop()
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _restore_handler_if_unused() -> None:
    if not list(_flights):  # the set may not yet know that one is gone
        _restore_handler()


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    for flight in list(_flights):
        flight.fail("the process was told to end (SIGTERM)")
    before = _before[-1] if _before else signal.SIG_DFL
    if callable(before):
        before(number, frame)
    elif before != signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


def _at_exit() -> None:
    """Write if the program ended with an error that nobody caught; the interpreter still has it."""
    error = getattr(sys, "last_value", None)
    for flight in list(_flights) if error is not None else ():
        flight.fail(f"the program ended with {type(error).__name__}: {error}")


atexit.register(_at_exit)
