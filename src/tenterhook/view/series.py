"""Numbers over targets and steps, as small as a picture needs them."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tenterhook.record import Run

#: cells of all matrices together; two bytes each
CELLS = 5_000_000
#: columns that a screen shows
COLUMNS = 300
#: codes of a cell: nothing was recorded; something was not finite; zero; the rest is a logarithm
MISSING, NONFINITE, ZERO, FIRST = 0, 1, 2, 3
#: in this order they are kept, if there is no room for all
NAMES = ("rms", "norm", "ratio", "score", "change", "abs_max", "zeros", "nonfinite", "mean")


@dataclass(frozen=True, slots=True)
class Matrix:
    """The largest magnitude of one number in each bin of steps, a row for each target; by logarithm, in two bytes."""

    hook: str
    name: str
    targets: list[str]
    columns: int
    low: float
    high: float
    cells: bytes

    def data(self) -> dict[str, Any]:
        return {
            "hook": self.hook, "name": self.name, "targets": self.targets, "columns": self.columns, "low": self.low,
            "high": self.high, "cells": base64.b64encode(self.cells).decode(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a run, in bins."""

    first: int
    last: int
    columns: int

    @property
    def each(self) -> int:
        return math.ceil((self.last - self.first + 1) / self.columns)

    def data(self) -> dict[str, int]:
        return {"first": self.first, "last": self.last, "columns": self.columns, "each": self.each}


def matrices(run: Run, steps: Steps, *, room: int = CELLS) -> Iterator[Matrix]:
    """What was recorded as single numbers, the likeliest to be asked for first, as long as there is room."""
    for hook, name, targets in _listed(run):
        room -= targets * steps.columns
        if room >= 0:
            yield _matrix(run, steps, hook, name)


def binned(run: Run, room: int = CELLS) -> Steps:
    """So many columns that the first matrix has room."""
    first, last = run.sql("select min(step), max(step) from rows").fetchall()[0]
    most = max((targets for *_, targets in _listed(run)), default=1)
    columns = max(1, min(COLUMNS, room // most, last - first + 1))
    each = math.ceil((last - first + 1) / columns)
    return Steps(first, last, math.ceil((last - first + 1) / each))


def _listed(run: Run) -> list[tuple[str, str, int]]:
    found = run.sql(
        "select hook, name, count(distinct target) from rows where value is not null and hook != 'tenterhook' "
        "group by hook, name"
    ).fetchall()  # fmt: skip
    place = {name: number for number, name in enumerate(NAMES)}
    return sorted(found, key=lambda row: (place.get(row[1], len(place)), row[0] != "grads", row[0]))


def _matrix(run: Run, steps: Steps, hook: str, name: str) -> Matrix:
    named = run.sql("select distinct target from rows where hook = ? and name = ?", hook, name).fetchall()
    targets = sorted((target for (target,) in named), key=natural)
    found = run.sql(
        "with places as (select unnest($1::varchar[]) as target, generate_subscripts($1::varchar[], 1) - 1 as place) "
        "select (any_value(place) * $6 + (step - $2) // $3)::bigint as cell, max(abs(value)) as value, "
        "bool_or(not isfinite(value)) as bad from rows join places using (target) "
        "where hook = $4 and name = $5 group by target, (step - $2) // $3",
        targets, steps.first, steps.each, hook, name, steps.columns,
    ).to_arrow_table()  # fmt: skip
    cell, value, bad = (torch.tensor(found[c].to_numpy(zero_copy_only=False)) for c in ("cell", "value", "bad"))
    value = torch.where(bad, 0.0, value)
    there = value[value > 0]
    low, high = (float(there.min()), float(there.max())) if len(there) else (1.0, 1.0)
    scaled = torch.log(torch.where(value > 0, value, low) / low) / (math.log(high / low) or 1.0)
    code = torch.where(value > 0, FIRST + torch.round(scaled * (65535 - FIRST)), ZERO)
    cells = torch.full((len(targets) * steps.columns,), MISSING, dtype=torch.int32)
    cells[cell] = torch.where(bad, NONFINITE, code).int()
    return Matrix(hook, name, targets, steps.columns, low, high, cells.numpy().astype("<u2").tobytes())


def natural(name: str) -> list[tuple[int, str]]:
    """`blocks.10` comes after `blocks.9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
