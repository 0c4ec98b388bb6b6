"""The recorder: rows of a step, kept on their device until it ends, then handed to the sinks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Sink = Callable[[dict[str, Any], int], Any]
Number = float | list[float]

#: rows that actions may emit in one step; more are dropped and counted
MAX_EMITTED = 65_536
#: tensors that one hook may keep of one step; likewise
MAX_CAPTURED = 4096


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded value."""

    step: int
    rank: int
    hook: str
    target: str
    name: str
    value: Number
    call: int | None = None
    leaf: int | None = None

    @property
    def key(self) -> str:
        tail = f"@{self.call}.{self.leaf}" if self.call or self.leaf else ""
        return f"{self.hook}/{self.target}/{self.name}{tail}"


class Table:
    """A hook's numbers of one step, a row for each target that fired; made when somebody reads them."""

    def __init__(
        self, step: int, targets: Sequence[str], fired: bytearray, columns: Callable[[], dict[str, Tensor]]
    ) -> None:
        self.step = step
        self._targets = targets
        self._fired = fired
        self._columns: Callable[[], dict[str, Tensor]] | None = columns
        self.names: list[str] = []
        self._widths: list[int] = []
        self._host: list[list[float]] | None = None

    @torch.no_grad()
    def on_device(self) -> Tensor | None:
        """A row for each site; None once it was read."""
        if self._columns is None:
            return None
        columns = self._columns()
        self.names = list(columns)
        self._widths = [c.shape[1] if c.dim() == 2 else 0 for c in columns.values()]
        return torch.cat([c.double().reshape(len(self._fired), -1) for c in columns.values()], dim=1)

    def fill(self, values: list[list[float]]) -> None:
        self._host, self._columns = values, None

    def values(self) -> dict[str, dict[str, Any]]:
        numbers = self.on_device()
        if numbers is not None:
            self.fill(numbers.tolist())
        assert self._host is not None
        found: dict[str, dict[str, Any]] = {}
        for slot, target in enumerate(self._targets):
            if slot >= len(self._fired) or not self._fired[slot]:
                continue
            row, at = {}, 0
            for name, width in zip(self.names, self._widths, strict=True):
                row[name] = self._host[slot][at : at + width] if width else self._host[slot][at]
                at += width or 1
            found[target] = row
        return found


class Recorder:
    """Takes tables and emitted numbers; at the end of a step copies them once and calls the sinks."""

    def __init__(self, sinks: Iterable[Sink], rank: int) -> None:
        self.sinks = list(sinks)
        self.rank = rank
        self.dropped = 0
        self._tables: dict[str, Table] = {}
        self._emitted: list[tuple[str, str, str, int, int, Tensor]] = []
        #: the last step's numbers by hook
        self.last: dict[str, Table] = {}
        self.last_emitted: dict[str, list[Row]] = {}
        self._captured: dict[str, tuple[int, dict[str, list[Tensor]]]] = {}
        self._kept: dict[str, int] = {}

    def put(self, hook: str, table: Table) -> None:
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
        """End of a step. The copy to the host happens here, and only for someone who reads it."""
        if self._emitted:
            numbers = torch.stack([e[5].to(self._emitted[0][5].device) for e in self._emitted]).tolist()
            rows: dict[str, list[Row]] = {}
            for (hook, target, name, call, leaf, _), number in zip(self._emitted, numbers, strict=True):
                rows.setdefault(hook, []).append(Row(step, self.rank, hook, target, name, number, call, leaf))
            self.last_emitted.update(rows)
            self._emitted.clear()
        else:
            rows = {}
        if self.sinks and (self._tables or rows):
            self._log(rows, step)
        self._tables = {}

    def _log(self, emitted: dict[str, list[Row]], step: int) -> None:
        _copy_to_host(list(self._tables.values()))
        entries: dict[str, Any] = {}
        for hook, table in self._tables.items():
            for target, row in table.values().items():
                entries.update({f"{hook}/{target}/{name}": value for name, value in row.items()})
        for rows in emitted.values():
            entries.update({row.key: row.value for row in rows})
        for sink in list(self.sinks):
            try:
                sink(dict(entries), step)
            except Exception as error:  # a sink must not break training
                self.sinks.remove(sink)
                warnings.warn(f"tenterhook: a sink raised {error!r} at step {step} and was dropped", stacklevel=2)


def _copy_to_host(tables: list[Table]) -> None:
    """All tables in one copy."""
    there = [(table, values) for table in tables if (values := table.on_device()) is not None]
    if not there:
        return
    flat = torch.cat([v.reshape(-1).to(there[0][1].device) for _, v in there]).tolist()
    at = 0
    for table, tensor in there:
        width = tensor.shape[1]
        table.fill([flat[at + i * width : at + (i + 1) * width] for i in range(tensor.shape[0])])
        at += tensor.numel()
