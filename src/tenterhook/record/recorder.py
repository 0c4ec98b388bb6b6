"""The recorder: keeps what hooks measure and emit on its device until the step ends, then hands it to the sinks."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tenterhook.record.flight import Flight
from tenterhook.record.rows import Batch, Row, StepTable, copy_to_host
from tenterhook.record.sink_worker import Sink, SinkWorker
from tenterhook.record.store import Store

#: rows that actions may emit in one step; more are dropped and counted
MAX_EMITTED = 65_536
#: tensors that one hook may keep of one step; likewise
MAX_CAPTURED = 4096


class Recorder:
    """Collect tables and emitted numbers; when a step ends they go to the sinks, each of which has its own thread."""

    def __init__(self, sinks: Sequence[Sink | Flight], rank: int) -> None:
        self.flights = [sink for sink in sinks if isinstance(sink, Flight)]
        self.workers = [SinkWorker(sink) for sink in sinks if not isinstance(sink, Flight)]
        weakref.finalize(self, _finish, self.workers)
        self.rank = rank
        self.dropped = 0
        self._tables: dict[str, StepTable] = {}
        self._emitted: list[tuple[str, str, str, int, int, Tensor]] = []
        #: the last step's numbers by hook
        self.last: dict[str, StepTable] = {}
        self.last_emitted: dict[str, list[Row]] = {}
        #: by hook, the step, and its tensors by target
        self._captured: dict[str, tuple[int, dict[str, list[Tensor]]]] = {}
        #: by hook, how many tensors that are
        self._captures: dict[str, int] = {}

    @property
    def has_sinks(self) -> bool:
        return bool(self.workers or self.flights)

    def add_table(self, hook: str, table: StepTable, *, shared: bool = False) -> None:
        """Take a hook's numbers of this step; `shared` means that all ranks have the same, which the first writes."""
        if not shared or self.rank == 0:
            self._tables[hook] = table
        self.last[hook] = table

    def emit(self, hook: str, target: str, name: str, call: int, leaf: int, value: Tensor | float) -> None:
        """Take one number that an action emitted."""
        if len(self._emitted) >= MAX_EMITTED:
            self.dropped += 1
            return
        number = value.detach() if isinstance(value, Tensor) else torch.tensor(float(value))
        # A copy: what a hook is given may be written over before the step ends.
        self._emitted.append((hook, target, name, call, leaf, number.reshape(()).to(torch.float64, copy=True)))

    def capture(self, hook: str, target: str, step: int, tensor: Tensor) -> None:
        """Keep a copy of a tensor until the hook captures in another step."""
        kept = self._captured.get(hook)
        if kept is None or kept[0] != step:
            kept = self._captured[hook] = (step, {})
            self._captures[hook] = 0
        if self._captures[hook] >= MAX_CAPTURED:
            self.dropped += 1
            return
        self._captures[hook] += 1
        kept[1].setdefault(target, []).append(tensor.detach().clone())

    def captured(self, hook: str) -> dict[str, list[Tensor]]:
        return self._captured.get(hook, (0, {}))[1]

    def forget(self, hook: str) -> None:
        for table in (self._tables, self.last, self.last_emitted, self._captured):
            table.pop(hook, None)

    def flush(self, step: int) -> None:
        """End a step: hand its rows to the sinks. Only what was emitted is read here; tables are read by the sinks."""
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
        if self.has_sinks and (self._tables or rows):
            copy_to_host(list(self._tables.values()))
            for flight in self.flights:
                flight.record(Batch(step, self.rank, self._tables, rows))
            for worker in self.workers:
                worker.enqueue(Batch(step, self.rank, self._tables, rows))
        self._tables = {}

    def write_sidecar(self, name: str, text: Callable[[], str]) -> None:
        """Write a file beside the rows of each sink that is a Store."""
        for worker in self.workers:
            if isinstance(worker.sink, Store):
                try:
                    worker.sink.keep(name, text())
                except Exception as error:  # a sink must not break training
                    warnings.warn(f"tenterhook: {name} could not be kept: {error!r}", stacklevel=2)

    def catch_up(self, timeout: float) -> bool:
        """Wait until the sinks have all there is, and the flights are written; return True if they are."""
        until = time.monotonic() + timeout
        waits = [*(flight.catch_up for flight in self.flights), *(worker.catch_up for worker in self.workers)]
        caught_up = [wait(max(0.0, until - time.monotonic())) for wait in waits]  # each is asked, to make it hurry
        return all(caught_up)

    def close(self) -> None:
        for flight in self.flights:
            flight.close()
        for worker in self.workers:
            worker.finish()
        for worker in self.workers:
            worker.close()


def _finish(workers: list[SinkWorker]) -> None:
    """Let the sinks write what they have; the recorder is gone, and nobody waits for them."""
    for worker in workers:
        worker.finish()
