"""Define the rows that contain the recorded numbers of a step.

Most numbers stay in tensors until a sink or the user reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tenterhook.transfers import send_to_host

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

    def numbers(self) -> Tensor:
        """Return all numbers, with one row per site."""
        return self.collect()[1]

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


class OnDevice(Protocol):
    """Numbers that may be on a device."""

    device: torch.device

    def numbers(self) -> Tensor: ...
    def read_from(self, host: Callable[[], Tensor]) -> None: ...


def copy_to_host(recorded: Sequence[OnDevice]) -> None:
    """Start copying all numbers from other devices to the host, without waiting for the copy to finish."""
    there = [(one, one.numbers()) for one in recorded if one.device.type != "cpu"]
    if not there:
        return
    device = there[0][1].device
    read = send_to_host(torch.cat([values.reshape(-1).to(device, non_blocking=True) for _, values in there]))
    at = 0
    for one, values in there:
        one.read_from(partial(_part, read, at, values.shape))
        at += values.numel()


def _part(read: Callable[[], Tensor], at: int, shape: torch.Size) -> Tensor:
    return read()[at : at + shape.numel()].view(shape)


class Emitted(NamedTuple):
    """A number that an action emitted, before it is read."""

    hook: str
    target: str
    name: str
    call: int
    leaf: int
    #: a number of Python, a float64 tensor without dimensions, or None if the tensor was copied to the host
    value: Tensor | float | None


class EmittedRows(Sequence[Row]):
    """The rows of the numbers that actions emitted in a step. The numbers are read when the first row is read."""

    def __init__(self, step: int, rank: int, emitted: Sequence[Emitted]) -> None:
        self._step, self._rank, self._emitted = step, rank, emitted
        tensors = [one.value for one in emitted if isinstance(one.value, Tensor)]
        self.device = next((one.device for one in tensors if one.device.type != "cpu"), torch.device("cpu"))
        self._numbers: Callable[[], Tensor] = partial(_stack, tensors, self.device)
        self._rows: list[Row] = []

    def numbers(self) -> Tensor:
        """Return the numbers that were emitted as tensors."""
        return self._numbers()

    def read_from(self, host: Callable[[], Tensor]) -> None:
        """Switch to reading the numbers from a copy on the host. The function `host` waits until it is complete."""
        self._numbers, self.device = host, torch.device("cpu")
        self._emitted = [one._replace(value=None) if isinstance(one.value, Tensor) else one for one in self._emitted]

    def __len__(self) -> int:
        return len(self._emitted)

    def __getitem__(self, at: Any) -> Any:
        self._rows = self._rows or self._read()
        return self._rows[at]

    def _read(self) -> list[Row]:
        numbers, rows = iter(self._numbers().tolist()), []
        for hook, target, name, call, leaf, value in self._emitted:
            number = value if isinstance(value, float) else next(numbers)
            rows.append(Row(self._step, self._rank, hook, target, name, number, call, leaf))
        return rows


def _stack(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    here = [one.to(device, non_blocking=True) for one in tensors]
    return torch.stack(here) if here else torch.zeros(0, dtype=torch.float64, device=device)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step, which are passed to the sinks."""

    step: int
    rank: int
    tables: dict[str, StepTable] = field(default_factory=dict)
    emitted: Sequence[Row] = ()
    #: number of rows dropped before this batch
    dropped: int = 0

    def __len__(self) -> int:
        return sum(table.count for table in self.tables.values()) + len(self.emitted)

    def joined(self, other: Batch) -> Batch:
        """Return the rows of two batches of the same step."""
        return replace(self, tables={**self.tables, **other.tables}, emitted=[*self.emitted, *other.emitted])

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
