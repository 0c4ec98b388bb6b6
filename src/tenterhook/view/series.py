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


@dataclass(frozen=True, slots=True)
class Listing:
    """What there is in a run, found in one pass over it."""

    first: int
    last: int
    #: of each hook and name that has single numbers, the targets; the likeliest to be asked for first
    single: dict[tuple[str, str], list[str]]
    #: of each hook that has lists, the targets
    lists: dict[str, list[str]]
    dropped: int

    @property
    def targets(self) -> int:
        found = [*self.single.values(), *self.lists.values()]
        return len({target for targets in found for target in targets})


def listed(run: Run) -> Listing:
    found = run.sql(
        "select hook, name, target, min(step), max(step), count(value) > 0, sum(value) from rows group by all"
    ).fetchall()  # fmt: skip
    single: dict[tuple[str, str], list[str]] = {}
    lists: dict[str, list[str]] = {}
    dropped = 0
    for hook, name, target, _, _, has_value, total in found:
        if hook == "tenterhook":
            dropped += int(total)
        elif has_value:
            single.setdefault((hook, name), []).append(target)
        else:
            lists.setdefault(hook, []).append(target)
    place = {name: number for number, name in enumerate(NAMES)}
    order = sorted(single, key=lambda key: (place.get(key[1], len(place)), key[0] != "grads", key[0]))
    first, last = min(row[3] for row in found), max(row[4] for row in found)
    return Listing(first, last, {key: sorted(single[key], key=natural) for key in order}, lists, dropped)


def binned(listing: Listing, room: int = CELLS) -> Steps:
    """So many columns that the first matrix has room."""
    most = max(map(len, listing.single.values()), default=1)
    span = listing.last - listing.first + 1
    columns = max(1, min(COLUMNS, room // most, span))
    return Steps(listing.first, listing.last, math.ceil(span / math.ceil(span / columns)))


def matrices(run: Run, listing: Listing, steps: Steps, *, room: int = CELLS) -> Iterator[Matrix]:
    """What was recorded as single numbers, as long as there is room."""
    for (hook, name), targets in listing.single.items():
        room -= len(targets) * steps.columns
        if room >= 0:
            yield _matrix(run, steps, hook, name, targets)


def _matrix(run: Run, steps: Steps, hook: str, name: str, targets: list[str]) -> Matrix:
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
