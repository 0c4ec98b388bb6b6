"""The recorder: what hooks measure and emit in a step, kept on its device until it ends, then handed to the sinks."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tenterhook.record.flight import Flight
from tenterhook.record.rows import Batch, Row, Table, leave_device
from tenterhook.record.sink_worker import Outlet, Sink
from tenterhook.record.store import Store

#: rows that actions may emit in one step; more are dropped and counted
MAX_EMITTED = 65_536
#: tensors that one hook may keep of one step; likewise
MAX_CAPTURED = 4096


class Recorder:
    """Takes tables and emitted numbers; at the end of a step they go to the sinks, each of which has its own thread."""

    def __init__(self, sinks: Sequence[Sink | Flight], rank: int) -> None:
        self.flights = [sink for sink in sinks if isinstance(sink, Flight)]
        self.outlets = [Outlet(sink) for sink in sinks if not isinstance(sink, Flight)]
        weakref.finalize(self, _finish, self.outlets)
        self.rank = rank
        self.dropped = 0
        self._tables: dict[str, Table] = {}
        self._emitted: list[tuple[str, str, str, int, int, Tensor]] = []
        #: the last step's numbers by hook
        self.last: dict[str, Table] = {}
        self.last_emitted: dict[str, list[Row]] = {}
        self._captured: dict[str, tuple[int, dict[str, list[Tensor]]]] = {}
        self._kept: dict[str, int] = {}

    @property
    def listened(self) -> bool:
        """Whether anybody takes what is recorded."""
        return bool(self.outlets or self.flights)

    def put(self, hook: str, table: Table, *, shared: bool = False) -> None:
        """`shared`: all ranks have the same numbers, which the first one writes."""
        if not shared or self.rank == 0:
            self._tables[hook] = table
        self.last[hook] = table

    def emit(self, hook: str, target: str, name: str, call: int, leaf: int, value: Tensor | float) -> None:
        if len(self._emitted) >= MAX_EMITTED:
            self.dropped += 1
            return
        number = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        # A copy: what a hook is given may be written over before the step ends.
        self._emitted.append((hook, target, name, call, leaf, number.reshape(()).to(torch.float64, copy=True)))

    def keep(self, hook: str, target: str, step: int, tensor: Tensor) -> None:
        kept = self._captured.get(hook)
        if kept is None or kept[0] != step:
            kept = self._captured[hook] = (step, {})
            self._kept[hook] = 0
        if self._kept[hook] >= MAX_CAPTURED:
            self.dropped += 1
            return
        self._kept[hook] += 1
        kept[1].setdefault(target, []).append(tensor.detach().clone())

    def captured(self, hook: str) -> dict[str, list[Tensor]]:
        return self._captured.get(hook, (0, {}))[1]

    def forget(self, hook: str) -> None:
        for table in (self._tables, self.last, self.last_emitted, self._captured):
            table.pop(hook, None)

    def flush(self, step: int) -> None:
        """End of a step. Nothing is read here but what was emitted; tables are read by whoever writes them."""
        rows: list[Row] = []
        if self._emitted:
            numbers = torch.stack([e[5].to(self._emitted[0][5].device) for e in self._emitted]).tolist()
            for (hook, target, name, call, leaf, _), number in zip(self._emitted, numbers, strict=True):
                rows.append(Row(step, self.rank, hook, target, name, number, call, leaf))
            by_hook: dict[str, list[Row]] = {}
            for row in rows:
                by_hook.setdefault(row.hook, []).append(row)
            self.last_emitted.update(by_hook)
            self._emitted.clear()
        if self.listened and (self._tables or rows):
            leave_device(list(self._tables.values()))
            for flight in self.flights:
                flight.put(Batch(step, self.rank, self._tables, rows))
            for outlet in self.outlets:
                outlet.put(Batch(step, self.rank, self._tables, rows))
        self._tables = {}

    def keep_beside(self, name: str, text: Callable[[], str]) -> None:
        """A file beside the rows, for those who have a place for it."""
        for outlet in self.outlets:
            if isinstance(outlet.sink, Store):
                try:
                    outlet.sink.keep(name, text())
                except Exception as error:  # a sink must not break training
                    warnings.warn(f"tenterhook: {name} could not be kept: {error!r}", stacklevel=2)

    def catch_up(self, timeout: float) -> bool:
        """Wait until the sinks have all there is, and the flights are written; whether they are."""
        until = time.monotonic() + timeout
        waits = [*(flight.catch_up for flight in self.flights), *(outlet.catch_up for outlet in self.outlets)]
        return False not in [wait(max(0.0, until - time.monotonic())) for wait in waits]  # each is told to hurry

    def close(self) -> None:
        for flight in self.flights:
            flight.close()
        for outlet in self.outlets:
            outlet.finish()
        for outlet in self.outlets:
            outlet.close()


def _finish(outlets: list[Outlet]) -> None:
    """Nobody records any more; nobody waits for the sinks either."""
    for outlet in outlets:
        outlet.finish()
