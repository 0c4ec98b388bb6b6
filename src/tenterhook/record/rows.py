"""Define the rows that contain the recorded numbers of a step.

Most numbers stay in tensors until a sink or the user reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

Number = float | list[float]


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded value, which is a number or a list of numbers."""

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


class StepTable:
    """A hook's numbers for one step, with one row for each target that fired.

    The numbers are computed only when they are read.
    """

    def __init__(
        self,
        step: int,
        targets: Sequence[str],
        fired: bytearray,
        columns: Callable[[], dict[str, Tensor]],
        *,
        width: int,
        device: torch.device,
    ) -> None:
        self.step = step
        self.targets = targets
        self.device = device
        #: number of recorded values
        self.count = width * fired.count(1)
        self._fired = fired
        self._columns = columns
        self._collected: tuple[dict[str, int], Tensor] | None = None

    @property
    def fired(self) -> list[int]:
        """Return the slots of the targets that fired."""
        return [slot for slot, fired in enumerate(self._fired) if fired and slot < len(self.targets)]

    @torch.no_grad()
    def collect(self) -> tuple[dict[str, int], Tensor]:
        """Return the list length for each name (0 for a single number), and all numbers with one row per site."""
        if self._collected is None:
            columns = self._columns()
            widths = {name: c.shape[1] if c.dim() == 2 else 0 for name, c in columns.items()}
            joined = torch.cat([c.double().reshape(len(self._fired), -1) for c in columns.values()], dim=1)
            self._collected = widths, joined
        return self._collected

    def read_from(self, host: Callable[[], Tensor]) -> None:
        """Switch to reading the numbers from a copy on the host.

        The function `host` waits until the copy is complete, and returns it.
        """
        widths, _ = self.collect()

        def columns() -> dict[str, Tensor]:
            parts = host().split([w or 1 for w in widths.values()], dim=1)
            return {n: part if w else part.squeeze(1) for (n, w), part in zip(widths.items(), parts, strict=True)}

        self._collected, self._columns, self.device = None, columns, torch.device("cpu")

    def values(self) -> dict[str, dict[str, float]]:
        """Return the single numbers for each target that fired, as {target: {name: number}}."""
        rows = ((t, {n: v for n, v in row.items() if not isinstance(v, list)}) for t, row in self.rows().items())
        return {target: row for target, row in rows if row}

    def vectors(self) -> dict[str, dict[str, list[float]]]:
        """Return the lists of numbers for each target that fired, as {target: {name: numbers}}."""
        rows = ((t, {n: v for n, v in row.items() if isinstance(v, list)}) for t, row in self.rows().items())
        return {target: row for target, row in rows if row}

    def rows(self) -> dict[str, dict[str, Number]]:
        """Return the numbers for each target that fired, as {target: {name: number or list of numbers}}."""
        widths, joined = self.collect()
        numbers = joined.tolist()
        found: dict[str, dict[str, Number]] = {}
        for slot in self.fired:
            row: dict[str, Number] = {}
            at = 0
            for name, width in widths.items():
                row[name] = numbers[slot][at : at + width] if width else numbers[slot][at]
                at += width or 1
            found[self.targets[slot]] = row
        return found


def copy_to_host(tables: list[StepTable]) -> None:
    """Start copying all numbers from other devices to the host, without waiting for the copy to finish."""
    there = [(t, t.collect()[1]) for t in tables if t.device.type != "cpu"]
    if not there:
        return
    device = there[0][1].device
    read = send_to_host(torch.cat([values.reshape(-1).to(device) for _, values in there]))
    at = 0
    for table, values in there:
        table.read_from(partial(_part, read, at, values.shape))
        at += values.numel()


def _part(read: Callable[[], Tensor], at: int, shape: torch.Size) -> Tensor:
    return read()[at : at + shape.numel()].view(shape)


def send_to_host(values: Tensor) -> Callable[[], Tensor]:
    """Start copying a tensor to the host. Return a function that waits for the copy and returns it."""
    if values.device.type == "cpu":
        return lambda: values
    pinned = values.device.type == "cuda"
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=pinned).copy_(values, non_blocking=True)
    sent = torch.Event(values.device)
    sent.record()

    def wait() -> Tensor:
        sent.synchronize()
        return host

    return wait


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step, which are passed to the sinks."""

    step: int
    rank: int
    tables: dict[str, StepTable] = field(default_factory=dict)
    emitted: list[Row] = field(default_factory=list)
    #: number of rows dropped before this batch
    dropped: int = 0

    def __len__(self) -> int:
        return sum(table.count for table in self.tables.values()) + len(self.emitted)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the tables, then the emitted rows."""
        for hook, table in self.tables.items():
            for target, numbers in table.rows().items():
                for name, value in numbers.items():
                    yield Row(self.step, self.rank, hook, target, name, value)
        yield from self.emitted

    def entries(self) -> dict[str, Any]:
        """Return the rows as a dict, for `log(dict, step)`."""
        entries = {row.key: row.value for row in self.rows()}
        if self.dropped:
            entries["tenterhook/dropped"] = self.dropped
        return entries
