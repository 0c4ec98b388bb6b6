"""Measure a matrix row by row, and combine the results by site.

The rows of the matrix are pieces of tensors. `batched` lays out the rows and records the site of each row. The results
are sums, maxima or counts per bin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from tenterhook.transfers import send_to_device

#: number of elements in a row
ROW_WIDTH = 1024
#: number of rows that fit in a core's cache, so that reading them several times is fast
CACHED_ROWS = 512


class RowMeasure(Protocol):
    """An object that measures each row of a matrix and combines the results by site."""

    def kernel(self, x: Tensor) -> Any:
        """Measure the rows. This method can be compiled."""

    def eager(self, x: Tensor) -> Any:
        """Measure the rows without compilation."""

    def start(self, sites: int, device: torch.device) -> Any:
        """Return an empty accumulator for the given number of sites."""

    def add_site(self, into: Any, made: Any, site: int) -> None:
        """Add to `into` a result of `kernel` or `eager` whose rows all belong to one site."""

    def add_rows(self, into: Any, made: Any, sites: Tensor) -> None:
        """Add a result of `kernel` or `eager` to `into`. `sites` contains the site index of each row."""

    def finish(self, into: Any, padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
        """Return the partial results of each site. `padding` contains the number of zeros added to each site."""


def widen(x: Tensor) -> Tensor:
    """Return `x` in a dtype that is precise enough for sums."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


#: values for each row: first the values to sum, then at most one value whose maximum is taken
Rows = tuple[Tensor, ...]
#: the values of the rows added so far, the sites of these rows, and the table of totals
TotalsSoFar = tuple[list[Rows], list[Tensor], Tensor]


class RowTotals:
    """A row measure that sums values over the rows of each site and takes the maximum of at most one other value."""

    def __init__(
        self,
        sums: int,
        kernel: Callable[[Tensor], Rows],
        eager: Callable[[Tensor], Rows],
        finish: Callable[..., dict[str, Tensor]],
    ) -> None:
        #: `finish` takes the sums, the padding, the numbers of elements and the maxima
        self._sums, self._kernel, self._eager, self._finish = sums, kernel, eager, finish

    def kernel(self, x: Tensor) -> Rows:
        return self._kernel(widen(x))

    def eager(self, x: Tensor) -> Rows:
        parts = [self._eager(widen(part)) for part in x.split(CACHED_ROWS)]
        return parts[0] if len(parts) == 1 else tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def start(self, sites: int, device: torch.device) -> TotalsSoFar:
        return [], [], torch.zeros(self._sums + 1, sites, dtype=torch.float64, device=device)

    def add_site(self, into: TotalsSoFar, made: Rows, site: int) -> None:
        self.add_rows(into, made, torch.full_like(made[0], site, dtype=torch.int64))

    def add_rows(self, into: TotalsSoFar, made: Rows, sites: Tensor) -> None:
        into[0].append(made)
        into[1].append(sites)

    def finish(self, into: TotalsSoFar, padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
        rows, sites, totals = into
        if not rows:  # all sites are empty
            rows, sites = [(totals[0, :0],) * len(totals)], [torch.zeros(0, dtype=torch.int64, device=totals.device)]
        columns = [torch.cat(column) for column in zip(*rows, strict=True)] if len(rows) > 1 else rows[0]
        place = torch.cat(sites) if len(sites) > 1 else sites[0]
        made = torch.stack(list(columns)).double()
        sums = totals[: self._sums].scatter_add_(1, place.expand(self._sums, -1), made[: self._sums])
        largest = [totals[-1].scatter_reduce_(0, place, one, "amax") for one in made[self._sums :]]
        return self._finish(sums, padding, numel, *largest)


class RowBins:
    """A row measure that counts elements by bin. Each element has a small integer key, which a table maps to a bin."""

    def __init__(
        self, name: str, keys: Callable[[Tensor], Tensor], bin_of_key: Callable[[torch.dtype], list[int]]
    ) -> None:
        #: elements whose key maps to bin -1 are not counted
        self._name, self._keys, self._bin_of_key = name, keys, bin_of_key

    def kernel(self, x: Tensor) -> tuple[Tensor, torch.dtype]:
        return self._keys(widen(x)), widen(x).dtype

    def eager(self, x: Tensor) -> tuple[Tensor, torch.dtype]:
        parts = [widen(part) for part in x.split(CACHED_ROWS)]
        return torch.cat([self._keys(part) for part in parts]), parts[0].dtype

    def start(self, sites: int, device: torch.device) -> dict[str, Tensor]:
        bins = max(self._bin_of_key(torch.float32)) + 1
        return {"counts": torch.zeros(sites, bins, dtype=torch.float64, device=device)}

    def add_site(self, into: dict[str, Tensor], made: tuple[Tensor, torch.dtype], site: int) -> None:
        keys, dtype = made
        width, bins = len(self._bin_of_key(dtype)), into["counts"].shape[1]
        if keys.device.type == "cpu":
            counts = torch.bincount(keys.view(-1), minlength=width).unsqueeze(0)
            into["counts"][site] += self._fold(counts, dtype, bins)[0]
            return
        whole = keys.view(-1, ROW_WIDTH if keys.numel() % ROW_WIDTH == 0 else keys.numel())
        for part in whole.split(CACHED_ROWS):
            into["counts"][site] += self._fold(_count_keys(part, width), dtype, bins).sum(0)

    def add_rows(self, into: dict[str, Tensor], made: tuple[Tensor, torch.dtype], sites: Tensor) -> None:
        keys, dtype = made
        if keys.device.type != "cpu":
            for part, place in zip(keys.split(CACHED_ROWS), sites.split(CACHED_ROWS), strict=True):
                counts = _count_keys(part, len(self._bin_of_key(dtype)))
                into["counts"].index_add_(0, place, self._fold(counts, dtype, into["counts"].shape[1]))
            return
        mine, place = sites.unique_consecutive(return_inverse=True)
        width = len(self._bin_of_key(dtype))
        index = keys + (place * width).to(torch.int32).unsqueeze(1)
        counts = torch.bincount(index.view(-1), minlength=len(mine) * width).view(-1, width)
        into["counts"][mine] += self._fold(counts, dtype, into["counts"].shape[1])

    def _fold(self, counts: Tensor, dtype: torch.dtype, bins: int) -> Tensor:
        """Sum the counts of all keys that map to the same bin. An extra last column collects the counts to drop."""
        place = send_to_device(self._bin_of_key(dtype), counts.device)
        wide = torch.zeros(len(counts), bins + 1, dtype=torch.float64, device=counts.device)
        return wide.index_add_(1, place % (bins + 1), counts.double())[:, :bins]

    def finish(self, into: dict[str, Tensor], padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
        counts = into["counts"]
        counts[:, 0] -= padding
        return {self._name: counts}


def _count_keys(keys: Tensor, width: int) -> Tensor:
    """Count each key in each row. `torch.bincount` would wait for the device, because it reads the largest key."""
    one = torch.ones((), dtype=torch.int64, device=keys.device)
    counts = torch.zeros(len(keys), width, dtype=torch.int64, device=keys.device)
    return counts.scatter_add_(1, keys.long(), one.expand(keys.shape))
