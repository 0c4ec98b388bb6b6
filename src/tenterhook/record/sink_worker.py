"""Run each sink on its own thread, with its own queue.

If a sink is slow, hangs or raises an error, training continues as if the sink did not exist.
"""

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
from tenterhook.record.sinks import adapt_tracker

#: maximum number of rows that can wait for a sink; a step that exceeds this limit is dropped and counted
MAX_WAITING = 2**20
#: time limit in seconds for a tracker that is being closed: for the first rows, and then for each further progress
CLOSE_TIMEOUT = 10.0
#: the same for a Writer; on a slow machine, the first write alone can take several seconds
WRITER_CLOSE_TIMEOUT = 30.0


@runtime_checkable
class Writer(Protocol):
    """The interface of a sink that accepts batches.

    `write` returns only after the batches are stored. The methods are called on a separate thread.
    """

    @property
    def linger(self) -> float:
        """Return the number of seconds for which batches are collected before they are written together."""

    def write(self, batches: Sequence[Batch]) -> None: ...
    def close(self) -> None: ...


#: a Writer, or any function with the signature log(dict, step)
Sink = Writer | Callable[[dict[str, Any], int], Any]
#: a sink, a tracker object, or several of these; `as_sinks` converts them to a list
Sinks = Any


def as_sinks(given: Sinks) -> list[Sink | Flight]:
    """Return the given sinks as a list in which each tracker object is wrapped as a sink.

    Raise a StoreError for an object that is not a sink.
    """
    several = given if isinstance(given, list | tuple | set) else [given]
    sinks = [adapt_tracker(one) for one in several]
    for one in sinks:
        if isinstance(one, type) or (not isinstance(one, Writer | Flight) and not callable(one)):
            what = f"the class {one.__name__}" if isinstance(one, type) else f"an object of type {type(one).__name__}"
            raise StoreError(
                f"{what} is not a sink",
                remedy="pass a th.Store, th.Flight, SummaryWriter, W&B run, MLflow run or any function log(dict, step)",
            )
    return sinks


class SinkWorker:
    """A queue of batches for one sink, with a thread that passes the batches to the sink.

    At any time, `emitted` equals `written` + `dropped` + `waiting`. After `close`, `waiting` is 0.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.emitted = 0
        self.written = 0
        self.dropped = 0
        self.error: BaseException | None = None
        self.closed = False
        #: number of dropped rows already reported to the sink
        self._reported = 0
        self._reset()
        _open.add(self)

    def _reset(self) -> None:
        """Start with an empty queue and no thread.

        A forked process also calls this method, because the thread and the queued batches belong to the parent.
        """
        self._queue: deque[Batch] = deque()
        self.waiting = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._finishing = self._flushing = False
        #: when the sink last accepted rows, or was asked to finish
        self._progress = 0.0

    @property
    def name(self) -> str:
        return getattr(self.sink, "__qualname__", None) or type(self.sink).__name__

    # -- on the training thread --------------------------------------------------------------------------------------

    def enqueue(self, batch: Batch) -> None:
        """Queue the rows of a step for the sink, or drop them if too many rows are waiting."""
        rows = len(batch)
        with self._changed:
            self.emitted += rows
            if self.closed or (self.waiting and self.waiting + rows > MAX_WAITING):
                self.dropped += rows
                return
            self._queue.append(batch)
            self.waiting += rows
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"tenterhook: {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process may have reached its thread limit
            self.error = error
            return
        self._thread = thread

    def catch_up(self, timeout: float) -> bool:
        """Wait until no rows are queued. Return False if the timeout expires first."""
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self.waiting, timeout)

    def finish(self) -> None:
        """Stop accepting batches. Queued batches are still written."""
        with self._changed:
            self.closed = self._finishing = True
            self._progress = time.monotonic()
            self._changed.notify_all()

    @property
    def _timeout(self) -> float:
        return WRITER_CLOSE_TIMEOUT if isinstance(self.sink, Writer) else CLOSE_TIMEOUT

    def close(self) -> None:
        """Close the sink, and wait as long as it accepts rows. Report the rows that it does not accept as lost."""
        if not self._finishing:
            self.finish()
        if self._thread is None and isinstance(self.sink, Writer) and self in _open:
            self._start()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._wait_for(thread)
        with self._changed:
            lost = self.waiting
            self.dropped += lost
            self.waiting = 0
            self._queue.clear()
        _open.discard(self)
        if lost:
            warnings.warn(
                f"tenterhook: the sink {self.name} accepted nothing for {self._timeout:g} seconds, so the last {lost} "
                "rows are lost",
                RuntimeWarning,
                stacklevel=2,
            )

    def _wait_for(self, thread: threading.Thread) -> None:
        """Wait until the thread ends, or until the sink has accepted no rows for the length of its timeout."""
        while thread.is_alive() and (left := self._progress + self._timeout - time.monotonic()) > 0:
            thread.join(left)

    # -- on the worker's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        linger = self.sink.linger if isinstance(self.sink, Writer) else 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._finishing)
                if linger and not self._finishing:
                    self._changed.wait_for(self._must_write, linger)
                self._flushing = False
                if not self._queue:
                    break
                taken = [self._queue.popleft() for _ in range(len(self._queue) if linger else 1)]
                before = self.dropped
            rows = sum(map(len, taken))
            wrote = self._guard(partial(self._write, taken, before - self._reported))
            taken.clear()  # otherwise the step's numbers would stay in memory until the next step
            linger = self.sink.linger if isinstance(self.sink, Writer) else 0.0
            with self._changed:
                if self.waiting < rows:
                    return  # the worker was closed in the meantime, and these rows were counted as dropped
                self.waiting -= rows
                self._progress = time.monotonic()
                self.written += rows if wrote else 0
                self.dropped += 0 if wrote else rows
                self._reported = before if wrote else self._reported
                self._changed.notify_all()
        if isinstance(self.sink, Writer):
            self._guard(self.sink.close)

    def _must_write(self) -> bool:
        """Return True if the collected batches must be written now."""
        return self._finishing or self._flushing or self.waiting > MAX_WAITING // 2

    def _write(self, batches: list[Batch], dropped: int) -> None:
        if dropped:
            batches[0] = replace(batches[0], dropped=dropped)
        if isinstance(self.sink, Writer):
            self.sink.write(batches)
            return
        for batch in batches:
            self.sink(batch.entries(), batch.step)

    def _guard(self, act: Callable[[], None]) -> bool:
        """Call a function, and return True if it does not raise an error."""
        try:
            act()
        except Exception as error:  # an error in a sink must not stop training
            if self.error is None:
                warnings.warn(
                    f"tenterhook: the sink {self.name} raised {error!r}, so its rows are dropped", stacklevel=2
                )
            self.error = error
            return False
        return True


_open: weakref.WeakSet[SinkWorker] = weakref.WeakSet()


def _after_fork() -> None:
    for worker in list(_open):
        worker.emitted = worker.written = worker.dropped = worker._reported = 0
        worker._reset()


def _at_exit() -> None:
    workers = list(_open)
    for worker in workers:
        worker.finish()
    for worker in workers:
        worker.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
