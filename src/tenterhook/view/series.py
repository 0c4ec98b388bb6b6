"""Reduce the numbers of a run to matrices that a page can show, with a row per target and a column per bin of steps."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tenterhook.errors import StoreError
from tenterhook.record import TRAINING, Run

#: maximum total number of cells in all matrices; a cell takes two bytes
MAX_CELLS = 5_000_000
#: maximum number of columns that fit on a screen
MAX_COLUMNS = 300
#: cell codes: no record, not finite, zero; FIRST and higher codes encode a logarithm
MISSING, NONFINITE, ZERO, FIRST = 0, 1, 2, 3
#: order in which the numbers are shown; if there are too many cells, the last numbers are left out
NAMES = ("rms", "norm", "ratio", "score", "change", "abs_max", "zeros", "nonfinite", "mean")
#: a number without leading zeros
_DIGITS = re.compile(r"0*([0-9]+)")


@dataclass(frozen=True, slots=True)
class Matrix:
    """The largest magnitude of one recorded number in each bin of steps, with one row for each target.

    A cell encodes the logarithm of the magnitude in two bytes.
    """

    hook: str
    name: str
    targets: list[str]
    columns: int
    low: float
    high: float
    cells: bytes

    def data(self) -> dict[str, Any]:
        """Return the fields for the report's JSON data."""
        return {
            "hook": self.hook,
            "name": self.name,
            "targets": self.targets,
            "columns": self.columns,
            "low": self.low,
            "high": self.high,
            "cells": base64.b64encode(self.cells).decode(),
        }


@dataclass(frozen=True, slots=True)
class StepBins:
    """The way in which the steps of a run are grouped into columns."""

    first: int
    last: int
    columns: int

    @property
    def steps_per_column(self) -> int:
        return math.ceil((self.last - self.first + 1) / self.columns)

    def data(self) -> dict[str, int]:
        """Return the fields for the report's JSON data."""
        return {"first": self.first, "last": self.last, "columns": self.columns, "each": self.steps_per_column}


@dataclass(frozen=True, slots=True)
class Contents:
    """The hooks, names, targets and steps that a run contains."""

    first: int
    last: int
    #: targets for each hook and name with recorded single numbers; the most useful names come first
    single: dict[tuple[str, str], list[str]]
    #: targets of each hook that recorded lists of numbers
    lists: dict[str, list[str]]
    dropped: int

    @property
    def targets(self) -> int:
        found = [*self.single.values(), *self.lists.values()]
        return len({target for targets in found for target in targets})


def read_contents(run: Run) -> Contents:
    """Find the hooks, names, targets and steps of a run, in one pass."""
    query = "select hook, name, target, min(step), max(step), count(value) > 0, sum(value) from rows group by all"
    different = run.fetch("select approx_count_distinct(hash(hook, name, target)) from rows")[0][0]
    if different > 1.1 * run.limits.series:  # the number is approximate
        raise StoreError(
            f"the run has about {different:,} different curves; the limit is {run.limits.series:,}",
            remedy="read it with th.open_run instead of a report",
        )
    run.check_size()
    found = run.fetch(query)
    if any(None in row[:5] for row in found):
        raise StoreError("some rows of the run have no hook, target, name or step", remedy="move the damaged part away")
    single: dict[tuple[str, str], list[str]] = {}
    lists: dict[str, list[str]] = {}
    dropped = 0
    for hook, name, target, _, _, has_value, total in found:
        if hook == "tenterhook":
            dropped += int(total) if total is not None and math.isfinite(total) else 0
        elif has_value:
            single.setdefault((hook, name), []).append(target)
        else:
            lists.setdefault(hook, []).append(target)
    place = {name: number for number, name in enumerate(NAMES)}
    order = sorted(single, key=lambda key: (place.get(key[1], len(place)), key[0] != "grads", key[0]))
    # The norms of every step come first, because hooks may record fewer steps.
    order.sort(key=(TRAINING, "norm").__ne__)
    first, last = min(row[3] for row in found), max(row[4] for row in found)
    targets = sorted({target for some in single.values() for target in some}, key=natural_key)
    places = {target: number for number, target in enumerate(targets)}
    return Contents(first, last, {key: sorted(single[key], key=places.__getitem__) for key in order}, lists, dropped)


def choose_bins(contents: Contents, max_cells: int = MAX_CELLS) -> StepBins:
    """Choose the number of columns so that the largest matrix stays within the cell limit."""
    most = max(map(len, contents.single.values()), default=1)
    span = contents.last - contents.first + 1
    columns = max(1, min(MAX_COLUMNS, max_cells // most, span))
    return StepBins(contents.first, contents.last, math.ceil(span / math.ceil(span / columns)))


def matrices(run: Run, contents: Contents, bins: StepBins, *, max_cells: int = MAX_CELLS) -> Iterator[Matrix]:
    """Yield a matrix for each hook and name with recorded single numbers, until the cell limit is reached."""
    cells = max_cells
    for (hook, name), targets in contents.single.items():
        cells -= len(targets) * bins.columns
        if cells >= 0:
            yield _matrix(run, bins, hook, name, targets)


#: for each cell, its index (row by row), its largest magnitude, and whether any of its values is not finite
_QUERY = """
with places as (
  select unnest($1::varchar[]) as target, generate_subscripts($1::varchar[], 1) - 1 as place
)
select (any_value(place) * $6 + (step - $2) // $3)::bigint as cell, max(abs(value)) as value,
  bool_or(not isfinite(value)) as bad
from rows join places using (target)
where hook = $4 and name = $5 and value is not null
group by target, (step - $2) // $3
"""


def _matrix(run: Run, bins: StepBins, hook: str, name: str, targets: list[str]) -> Matrix:
    asked = (targets, bins.first, bins.steps_per_column, hook, name, bins.columns)
    found = run.fetch_table(_QUERY, *asked)
    cell, value, bad = (torch.tensor(found[c].to_numpy(zero_copy_only=False)) for c in ("cell", "value", "bad"))
    value = torch.where(bad, 0.0, value)
    there = value[value > 0]
    low, high = (float(there.min()), float(there.max())) if len(there) else (1.0, 1.0)
    scaled = torch.log(torch.where(value > 0, value, low) / low) / (math.log(high / low) or 1.0)
    code = torch.where(value > 0, FIRST + torch.round(scaled * (65535 - FIRST)), ZERO)
    cells = torch.full((len(targets) * bins.columns,), MISSING, dtype=torch.int32)
    cells[cell] = torch.where(bad, NONFINITE, code).int()
    return Matrix(hook, name, targets, bins.columns, low, high, cells.numpy().astype("<u2").tobytes())


def natural_key(name: str) -> tuple[str, str]:
    """Return a key that sorts `blocks.10` after `blocks.9`. A number is compared by its length, then by its digits."""
    return _DIGITS.sub(_longer_later, name), name


def _longer_later(digits: re.Match[str]) -> str:
    return f"{len(digits[1]):06}{digits[1]}"
