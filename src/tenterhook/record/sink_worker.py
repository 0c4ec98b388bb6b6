"""Run each sink on its own thread, with its own queue.

If a sink is slow, hangs or raises an error, training continues as if the sink did not exist.
"""

from __future__ import annotations

import atexit
import inspect
import os
import sys
import threading
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol, runtime_checkable

from tenterhook.errors import StoreError
from tenterhook.record.containment import call_and_report, warn_or_print
from tenterhook.record.flight import Flight
from tenterhook.record.rows import Batch
from tenterhook.record.sinks import adapt_tracker

#: maximum number of rows that can wait for a sink; a step that exceeds this limit is dropped and counted
MAX_WAITING = 2**20
#: seconds for which a sink may accept nothing before its remaining rows are dropped; a sink with an attribute
#: `close_timeout` sets its own time
CLOSE_TIMEOUT = 30.0
#: maximum number of reasons that are counted separately; the text of an error may be different each time
MAX_REASONS = 8
#: seconds after which the wait for a sink is reported, and seconds between the next reports
FIRST_REPORT, NEXT_REPORTS = 1.0, 10.0


@runtime_checkable
class Writer(Protocol):
    """The interface of a sink that accepts batches.

    `write` returns only after the batches are stored. The methods are called on a separate thread. A sink may have an
    attribute `close_timeout`: the seconds for which it may accept nothing while it is closed.
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
                remedy=f"create an object of the class, such as sinks={one.__name__}(...)"
                if isinstance(one, type)
                else "pass a th.Store, th.Flight, SummaryWriter, W&B run, MLflow run or any function log(dict, step)",
            )
        if not isinstance(one, Writer | Flight) and not _takes_two(one):
            raise StoreError(
                f"the sink {getattr(one, '__qualname__', type(one).__name__)} cannot be called with two arguments",
                remedy="write it as `def log(values, step): ...`; values is a dict of numbers",
            )
    return sinks


def _takes_two(sink: Callable[..., Any]) -> bool:
    """Return False if it is known that a function cannot be called as log(dict, step)."""
    try:
        inspect.signature(sink).bind({}, 0)
    except TypeError:
        return False
    except ValueError:
        pass  # a function that is not written in Python has no signature
    return True


class WorkerState(Enum):
    """The states of a worker. A worker goes through them in this order."""

    #: it accepts rows
    OPEN = auto()
    #: it accepts no rows, and writes those that are queued
    FINISHING = auto()
    #: its thread has ended
    ENDED = auto()


class SinkWorker:
    """A queue of batches for one sink, with a thread that passes the batches to the sink.

    At any time, `emitted` equals `written` + `dropped` + `waiting`. After `close`, only rows that the sink is still
    writing are waiting. If it writes them in the end, they count as written.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        #: number of dropped rows already reported to the sink
        self._reported = 0
        self._reset()
        _open.add(self)

    def _reset(self) -> None:
        """Start with an empty queue and no thread.

        A forked process also calls this method, because the thread and the queued batches belong to the parent.
        """
        self.state = WorkerState.OPEN
        self.emitted = 0
        self.written = 0
        #: number of dropped rows by reason
        self.lost: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._queue: deque[Batch] = deque()
        #: a handler of SIGTERM may run while this thread holds the lock, so the lock must be reentrant
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
        self._flushing = False
        #: when the sink last accepted rows, or was asked to write
        self._progress = 0.0

    @property
    def name(self) -> str:
        name = getattr(self.sink, "__qualname__", None) or type(self.sink).__name__
        path = getattr(self.sink, "path", None)
        return f"{name} {path}" if isinstance(path, str) else name

    @property
    def dropped(self) -> int:
        """Return the number of rows that the sink did not get, or did not accept."""
        return self.lost.total()

    @property
    def waiting(self) -> int:
        """Return the number of rows that are queued or being written."""
        return self.emitted - self.written - self.dropped

    @property
    def close_timeout(self) -> float:
        """Return the seconds for which the sink may accept nothing before its remaining rows are dropped."""
        return float(getattr(self.sink, "close_timeout", CLOSE_TIMEOUT))

    # -- on the training thread --------------------------------------------------------------------------------------

    def enqueue(self, batch: Batch) -> None:
        """Queue the rows of a step for the sink, or drop them if too many rows are waiting."""
        rows = len(batch)
        with self._changed:
            waiting = self.waiting
            self.emitted += rows
            if self.state is not WorkerState.OPEN:
                self._lose(rows, "the sink was closed" if self.error is None else self._raised())
                return
            if waiting and waiting + rows > MAX_WAITING:
                self._lose(rows, f"more than {MAX_WAITING:,} rows waited for the sink")
                return
            self._queue.append(batch)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        task = (f"the thread of the sink {self.name}", self._run)
        thread = threading.Thread(target=call_and_report, args=task, name=f"tenterhook: {self.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process has reached its limit of threads, or the interpreter is ending
            self.error = error
            return
        self._thread = thread

    def catch_up(self, timeout: float) -> bool:
        """Wait until no rows are queued. Return False if the timeout expires first."""
        self._ask_to_write()
        with self._changed:
            return self._changed.wait_for(lambda: not self.waiting, timeout)

    def flush(self) -> None:
        """Wait until no rows are queued, as long as the sink accepts rows. Warn if it does not."""
        self._ask_to_write()
        self._wait_until(lambda: not self.waiting)
        if self.waiting:
            warnings.warn(
                f"tenterhook: the sink {self.name} accepted nothing for {self.close_timeout:g} seconds; {self.waiting} "
                "rows are still waiting",
                RuntimeWarning,
                stacklevel=2,
            )

    def _ask_to_write(self) -> None:
        with self._changed:
            self._flushing = True
            self._progress = time.monotonic()
            self._changed.notify_all()

    def finish(self) -> None:
        """Stop accepting batches. Queued batches are still written."""
        with self._changed:
            if self.state is WorkerState.OPEN:
                self.state = WorkerState.FINISHING
                self._progress = time.monotonic()
                self._changed.notify_all()

    def close(self) -> None:
        """Close the sink, and wait as long as it accepts rows. Report the rows that are dropped."""
        self.finish()
        if self._thread is threading.current_thread():
            return  # the sink itself detaches the rig; the thread writes the rest afterwards
        if self._thread is None and self in _open and (self._queue or isinstance(self.sink, Writer)):
            self._start()
            if self._thread is None:
                self._run()
        self._wait_until(lambda: self.state is WorkerState.ENDED)
        with self._changed:
            self._lose(sum(map(len, self._queue)), f"the sink accepted nothing for {self.close_timeout:g} seconds")
            self._queue.clear()
        if self in _open:
            _open.discard(self)
            self._report_losses()

    def _lose(self, rows: int, why: str) -> None:
        if rows:
            self.lost[why if why in self.lost or len(self.lost) < MAX_REASONS else "of other errors"] += rows

    def _raised(self) -> str:
        return f"the sink raised {self.error!r}"

    def _report_losses(self) -> None:
        if self.dropped or self.waiting:
            warnings.warn(f"tenterhook: {self.losses()}", RuntimeWarning, stacklevel=3)

    def losses(self) -> str:
        """Describe in numbers which rows the sink did not write, and why."""
        reasons = [f"{rows} were dropped because {why}" for why, rows in self.lost.items()]
        reasons += [f"{self.waiting} are still being written"] if self.waiting else []
        return f"the sink {self.name} wrote {self.written} of {self.emitted} rows; {', '.join(reasons)}"

    def _wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until the sink is done, or has accepted nothing for too long. Show the progress on standard error."""
        report = time.monotonic() + FIRST_REPORT
        with self._changed:
            while not done() and (self._thread is not None and self._thread.is_alive()):
                now = time.monotonic()
                left = self._progress + self.close_timeout - now
                if left <= 0:
                    return
                if now >= report:
                    doing = f"writing the last {self.waiting} rows to" if self.waiting else "closing"
                    print(f"tenterhook: {doing} {self.name}", file=sys.stderr)
                    report = now + NEXT_REPORTS
                self._changed.wait(min(left, report - now))

    # -- on the worker's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._guard(self._work)
        if isinstance(self.sink, Writer):
            self._guard(self.sink.close, " while it was closed")
        with self._changed:
            if left := self.waiting:  # the loop has ended with an error
                self._lose(left, self._raised())
                self._queue.clear()
            self.state = WorkerState.ENDED
            self._changed.notify_all()

    def _work(self) -> None:
        """Pass batches to the sink until the worker is finished."""
        while taken := self._take():
            rows, before = sum(map(len, taken)), self.dropped
            wrote = self._guard(partial(self._write, taken, before - self._reported))
            taken.clear()  # otherwise the step's numbers would stay in memory until the next step
            with self._changed:
                self._progress = time.monotonic()
                if wrote:
                    self.written += rows
                    self._reported = before
                else:
                    self._lose(rows, self._raised())
                self._changed.notify_all()

    def _take(self) -> list[Batch]:
        """Wait for batches, and return those that shall be written together. Return none if the worker has finished."""
        linger = self.sink.linger if isinstance(self.sink, Writer) else 0.0
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self.state is WorkerState.FINISHING)
            if linger:
                self._changed.wait_for(self._must_write, linger)
            self._flushing = False
            return [self._queue.popleft() for _ in range(len(self._queue) if linger else min(1, len(self._queue)))]

    def _must_write(self) -> bool:
        """Return True if the collected batches must be written now."""
        return self.state is WorkerState.FINISHING or self._flushing or self.waiting > MAX_WAITING // 2

    def _write(self, batches: list[Batch], dropped: int) -> None:
        if dropped:
            batches[0] = replace(batches[0], dropped=dropped)
        if isinstance(self.sink, Writer):
            self.sink.write(batches)
            return
        for batch in batches:
            self.sink(batch.entries(), batch.step)

    def _guard(self, act: Callable[[], None], then: str = ", so its rows are dropped") -> bool:
        """Call a function of the sink, and return True if it does not raise an error, SystemExit included."""
        try:
            act()
        except BaseException as error:
            first, self.error = self.error is None, error
            if first:
                warn_or_print(f"tenterhook: the sink {self.name} raised {error!r}{then}")
            return False
        return True


_open: weakref.WeakSet[SinkWorker] = weakref.WeakSet()


def _after_fork() -> None:
    for worker in list(_open):
        worker._reported = 0
        worker._reset()


def _at_exit() -> None:
    workers = list(_open)
    for worker in workers:
        worker.finish()
    for worker in workers:
        call_and_report(f"closing the sink {worker.name}", worker.close)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
