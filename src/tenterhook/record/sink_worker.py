"""An outlet: one sink, its queue and its thread. Whatever the sink does, the training goes on as without it."""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

from tenterhook.errors import StoreError
from tenterhook.record.flight import Flight
from tenterhook.record.rows import Batch
from tenterhook.record.sinks import adapted

#: rows that wait for a sink; beyond it the newest step is dropped and counted
MAX_WAITING = 2**20


#: seconds in which everything is closed
CLOSING = 2.0


@runtime_checkable
class Writer(Protocol):
    """A sink that takes batches, and has them safe when `write` returns. Called from a thread of its own."""

    @property
    def linger(self) -> float:
        """Seconds in which batches may be collected, to be written together."""

    def write(self, batches: Sequence[Batch]) -> None: ...
    def close(self) -> None: ...


#: a Writer, or any log(dict, step)
Sink = Writer | Callable[[dict[str, Any], int], Any]


#: one, a tracker's own object, or several of either: known by what they are when they come
Sinks = Any


def as_sinks(given: Sinks) -> list[Sink | Flight]:
    """One, or several; a tracker's own object among them."""
    several = given if isinstance(given, list | tuple | set) else [given]
    sinks = [adapted(one) for one in several]
    for one in sinks:
        if isinstance(one, type) or (not isinstance(one, Writer | Flight) and not callable(one)):
            what = f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
            raise StoreError(
                f"{what} is no sink",
                remedy="give a th.Store, a th.Flight, a SummaryWriter, a W&B or MLflow run, or any log(dict, step)",
            )
    return sinks


class Outlet:
    """`emitted` = `written` + `dropped` + `waiting` at any moment; nothing waits once it is closed."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.emitted = 0
        self.written = 0
        self.dropped = 0
        self.error: BaseException | None = None
        self.closed = False
        self._told = 0
        self._renew()
        _open.add(self)

    def _renew(self) -> None:
        """As it has to be made anew in a forked process, which has neither the thread nor what waited for it."""
        self._queue: deque[Batch] = deque()
        self.waiting = 0
        self._turn = threading.Condition()
        self._thread: threading.Thread | None = None
        self._last = self._hurry = False
        self._deadline = 0.0

    @property
    def name(self) -> str:
        return getattr(self.sink, "__qualname__", None) or type(self.sink).__name__

    # -- on the training thread --------------------------------------------------------------------------------------

    def put(self, batch: Batch) -> None:
        rows = len(batch)
        with self._turn:
            self.emitted += rows
            if self.closed or (self.waiting and self.waiting + rows > MAX_WAITING):
                self.dropped += rows
                return
            self._queue.append(batch)
            self.waiting += rows
            if self._thread is None:
                self._start()
            self._turn.notify_all()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"tenterhook: {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process may have no more of them
            self.error = error
            return
        self._thread = thread

    def catch_up(self, timeout: float) -> bool:
        with self._turn:
            self._hurry = True
            self._turn.notify_all()
            return self._turn.wait_for(lambda: not self.waiting, timeout)

    def finish(self) -> None:
        """Take no more; what waits is still written."""
        with self._turn:
            self.closed = self._last = True
            self._deadline = time.monotonic() + CLOSING
            self._turn.notify_all()

    def close(self) -> None:
        """Within two seconds, whatever the sink does; what it has not taken by then is dropped."""
        if not self._last:
            self.finish()
        if self._thread is None and isinstance(self.sink, Writer) and self in _open:
            self._start()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, self._deadline - time.monotonic()))
        with self._turn:
            self.dropped += self.waiting
            self.waiting = 0
            self._queue.clear()
        _open.discard(self)

    # -- on its own thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        linger = self.sink.linger if isinstance(self.sink, Writer) else 0.0
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._queue or self._last)
                if linger and not self._last:
                    self._turn.wait_for(lambda: self._last or self._hurry or self.waiting > MAX_WAITING // 2, linger)
                self._hurry = False
                if not self._queue:
                    break
                taken = [self._queue.popleft() for _ in range(len(self._queue) if linger else 1)]
                before = self.dropped
            rows = sum(map(len, taken))
            wrote = self._attempt(partial(self._write, taken, before - self._told))
            taken.clear()  # or a step's numbers would be kept until there is another one
            linger = self.sink.linger if isinstance(self.sink, Writer) else 0.0
            with self._turn:
                if self.waiting < rows:
                    return  # it was closed meanwhile, and this counted as dropped
                self.waiting -= rows
                self.written += rows if wrote else 0
                self.dropped += 0 if wrote else rows
                self._told = before if wrote else self._told
                self._turn.notify_all()
        if isinstance(self.sink, Writer):
            self._attempt(self.sink.close)

    def _write(self, batches: list[Batch], dropped: int) -> None:
        if dropped:
            batches[0] = replace(batches[0], dropped=dropped)
        if isinstance(self.sink, Writer):
            self.sink.write(batches)
            return
        for batch in batches:
            self.sink(batch.entries(), batch.step)

    def _attempt(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:  # a sink must not break training
            if self.error is None:
                warnings.warn(f"tenterhook: the sink {self.name} raised {error!r}; its rows are dropped", stacklevel=2)
            self.error = error
            return False
        return True


_open: weakref.WeakSet[Outlet] = weakref.WeakSet()


def _in_the_child() -> None:
    for outlet in list(_open):
        outlet.emitted = outlet.written = outlet.dropped = outlet._told = 0
        outlet._renew()


def _at_the_end() -> None:
    outlets = list(_open)
    for outlet in outlets:
        outlet.finish()
    for outlet in outlets:
        outlet.close()


os.register_at_fork(after_in_child=_in_the_child)


atexit.register(_at_the_end)
