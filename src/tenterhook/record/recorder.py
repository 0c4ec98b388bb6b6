"""Collect the numbers that hooks record during a step, and pass them to the sinks when the step ends.

The numbers stay on their device until the step ends.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from tenterhook.errors import RefusedError
from tenterhook.record import sigterm
from tenterhook.record.containment import ContainedErrors
from tenterhook.record.flight import WRITING, Flight
from tenterhook.record.rows import Batch, Emitted, EmittedRows, OnDevice, Row, StepTable, copy_to_host
from tenterhook.record.run_folder.folder import VERDICTS
from tenterhook.record.sink_worker import Sink, SinkWorker
from tenterhook.record.store import Store
from tenterhook.record.verdict import Judge, Verdict, verdicts_json
from tenterhook.transfers import send_to_host

#: maximum number of rows that actions can emit in one step; further rows are dropped and counted
MAX_EMITTED = 262_144


class Recorder:
    """A recorder that collects tables and emitted numbers for the sinks. Each sink has its own thread.

    The rig calls the recorder during training only through `errors.contain`.
    """

    def __init__(self, sinks: Sequence[Sink | Flight], rank: int, *, first: int = 0) -> None:
        for sink in sinks:
            if isinstance(sink, Store):
                sink.begin(rank)
        self.flights = [sink for sink in sinks if isinstance(sink, Flight)]
        self.workers = [SinkWorker(sink) for sink in sinks if not isinstance(sink, Flight)]
        self.has_sinks = bool(self.workers or self.flights)
        weakref.finalize(self, _finish, self.workers)
        self.rank = rank
        #: the rank that records the numbers that are equal on all ranks
        self._first = first
        self.errors = ContainedErrors()
        #: watches the training, or None
        self.judge: Judge | None = None
        #: number of emitted rows and captures that exceeded a limit
        self.dropped = 0
        self._tables: dict[str, StepTable] = {}
        self._emitted: list[Emitted] = []
        #: for each hook, its numbers from the most recent step in which it fired
        self.last: dict[str, StepTable] = {}
        #: for each hook, the rows of all hooks from the most recent step in which it emitted numbers
        self._last_emitted: dict[str, EmittedRows] = {}
        #: for each hook, the step of the capture and, by target, functions that return the captured tensors
        self._captured: dict[str, tuple[int, dict[str, list[Callable[[], Tensor]]]]] = {}
        #: for each hook, the number of captured tensors
        self._captures: dict[str, int] = {}
        if self.has_sinks:
            sigterm.watch(self)

    def add_table(self, hook: str, table: StepTable, *, shared: bool = False) -> None:
        """Add a hook's numbers for this step.

        If `shared` is True, the numbers are equal on all ranks, and only the first rank records them.
        """
        if not shared or self.rank == self._first:
            self._tables[hook] = table
        self.last[hook] = table

    def add_earlier(self, hook: str, table: StepTable) -> None:
        """Add a hook's numbers for the last step that ended. They are equal on all ranks, and on the host."""
        self.last[hook] = table
        if self.has_sinks and self.rank == self._first:
            self._pass_on(Batch(table.step, self.rank, {hook: table}))

    def emit(self, hook: str, target: str, name: str, call: int, leaf: int, value: Tensor | float) -> None:
        """Add one number that an action emitted."""
        if len(self._emitted) >= MAX_EMITTED:
            self.dropped += 1
            return
        if isinstance(value, Tensor):
            # Copy the number, because its memory may be overwritten before the step ends.
            number: Tensor | float = value.detach().reshape(()).to(torch.float64, copy=True)
        else:
            number = float(value)
        self._emitted.append(Emitted(hook, target, name, call, leaf, number))

    def emitted(self, hook: str) -> list[Row]:
        """Return the numbers that a hook emitted in the most recent step in which it emitted some."""
        return [row for row in self._last_emitted.get(hook, ()) if row.hook == hook]

    def capture(
        self, hook: str, target: str, step: int, tensor: Tensor, *, to: Literal["cpu"] | None = None, most: int
    ) -> None:
        """Keep a copy of a tensor until the hook captures tensors in a later step."""
        kept = self._captured.get(hook)
        if kept is None or kept[0] != step:
            kept = self._captured[hook] = (step, {})
            self._captures[hook] = 0
        if self._captures[hook] >= most:
            self.dropped += 1
            return
        self._captures[hook] += 1
        kept[1].setdefault(target, []).append(_copied(tensor.detach(), to))

    def captured(self, hook: str) -> dict[str, list[Tensor]]:
        """Return the captured tensors of a hook by target."""
        return {target: [read() for read in kept] for target, kept in self._captured.get(hook, (0, {}))[1].items()}

    def forget(self, hook: str) -> None:
        for table in (self._tables, self.last, self._last_emitted, self._captured):
            table.pop(hook, None)

    def flush(self, step: int) -> None:
        """End a step and pass its rows to the sinks, which read the numbers on their own threads."""
        tables, self._tables = self._tables, {}
        emitted, self._emitted = self._emitted, []
        recorded: list[OnDevice] = list(tables.values())
        batch = Batch(step, self.rank, tables)
        if emitted:
            rows = EmittedRows(step, self.rank, emitted)
            self._last_emitted.update({one.hook: rows for one in emitted})
            recorded.append(rows)
            batch = Batch(step, self.rank, tables, rows)
        if self.has_sinks and recorded:
            self._pass_on(batch, recorded)

    def _pass_on(self, batch: Batch, recorded: Sequence[OnDevice] = ()) -> None:
        copy_to_host(recorded)
        for flight in self.flights:
            self.errors.contain("keeping a step for a flight report", flight.record, batch)
        for worker in self.workers:
            self.errors.contain("passing rows to a sink", worker.enqueue, batch)

    def trip(self, reason: str) -> None:
        """Let the flight recorders write a report, because a trigger tripped."""
        verdict = next(iter(self.verdicts()), None) if self.flights else None
        for flight in self.flights:
            self.errors.contain(WRITING, flight.trip, reason, verdict)

    def fail(self, reason: str) -> None:
        """Let the flight recorders write a report before this method returns, because the program may end."""
        verdict = next(iter(self.verdicts()), None) if self.flights else None
        for flight in self.flights:
            self.errors.contain(WRITING, flight.fail, reason, verdict)

    def require_judge(self) -> None:
        """Raise a RefusedError if nothing watches the training."""
        if self.judge is None:
            raise RefusedError(
                "this rig does not watch the training, so there is no verdict",
                remedy="use th.flight(model, optimizer, folder), or tenterhook run script.py",
            )

    def verdicts(self) -> list[Verdict]:
        """Return what went wrong in the training so far, the cause first."""
        return (self.errors.contain("judging the training", self.judge.verdicts) or []) if self.judge else []

    def on_sigterm(self) -> None:
        """Write everything before the process ends. The recorder still works if the process goes on."""
        self.fail("the process received SIGTERM")
        for worker in self.workers:
            self.errors.contain("writing the rows of a sink", worker.flush)

    @property
    def stores(self) -> list[Store]:
        """Return the sinks that write run folders."""
        return [worker.sink for worker in self.workers if isinstance(worker.sink, Store)]

    def write_sidecar(self, name: str, text: Callable[[], str]) -> None:
        """Write a text file into the run folder of each Store."""
        for store in self.stores:
            self.errors.contain(f"writing {name} into the run folder", store.keep, name, text())

    def catch_up(self, timeout: float) -> bool:
        """Wait until all rows and flight reports are written. Return False if the timeout expires first."""
        until = time.monotonic() + timeout
        waits = [*(flight.catch_up for flight in self.flights), *(worker.catch_up for worker in self.workers)]
        # Call `catch_up` for every sink, even after a timeout, because the call makes the sink write immediately.
        caught_up = [
            self.errors.contain("waiting for a sink", wait, max(0.0, until - time.monotonic())) for wait in waits
        ]
        return all(caught_up)

    def close(self) -> None:
        """Write everything and close the sinks."""
        if self.judge is not None:
            self.errors.contain("judging the training", self.judge.close)
            self.write_sidecar(VERDICTS, lambda: verdicts_json(self.verdicts()))
        for worker in self.workers:
            self.errors.contain("closing a sink", worker.finish)
        for close in [*(flight.close for flight in self.flights), *(worker.close for worker in self.workers)]:
            self.errors.contain("closing a sink", close)
        sigterm.unwatch(self)

    def losses(self) -> list[str]:
        """Describe what was recorded but not written, with numbers."""
        found = [worker.losses() for worker in self.workers if worker.dropped]
        if self.dropped:
            found.append(f"{self.dropped} rows or captures exceeded the limit per step and were dropped")
        failed = self.errors.counts.items()
        return found + [f"{what} failed{f' {times} times' if times > 1 else ''}" for what, times in failed]


def _copied(tensor: Tensor, to: Literal["cpu"] | None) -> Callable[[], Tensor]:
    """Return a function that returns a copy of a tensor. It waits for a copy to the host, so that the hook does not."""
    if to is None or tensor.device.type == "cpu":
        copy = tensor.clone()
    elif tensor.layout is torch.strided:
        return send_to_host(tensor)
    else:
        copy = tensor.to("cpu")
    return lambda: copy


def _finish(workers: list[SinkWorker]) -> None:
    """Make the sinks write their queued rows when the recorder is garbage-collected, without waiting for the sinks."""
    for worker in workers:
        worker.finish()
