"""Many tensors measured together: small ones are copied side by side into rows, large ones read where they are.

What is chosen, the layout and whether the reduction is compiled, is chosen once, from the shapes at attach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tenterhook.torch_internals import foreach_copy_, foreach_norm, foreach_zero_

#: elements of a row
WIDTH = 1024


#: elements from which on a tensor is not copied
ALONE = 2**18


#: elements that are copied side by side before they are reduced
PACK = 2**20


#: elements of a hook from which on making a kernel takes less time than it saves in a thousand steps
COMPILE_FROM = 2**22


#: rows that stay in a core's cache while they are read several times
CACHED = 512


#: pieces of a buffer from which on it is quicker to clear all of it
MANY = 256


class Form(NamedTuple):
    """What a tensor has to be like to be measured at its place."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        return cls(tensor.shape, tensor.dtype, tensor.device)

    @property
    def numel(self) -> int:
        return self.shape.numel()

    @property
    def measurable(self) -> bool:
        return self.dtype.is_floating_point and self.device.type != "meta"

    @property
    def wide(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32


class Gauge(Protocol):
    """Measures the tensors of a hook's sites at once."""

    engine: str

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether it was made for these."""

    def __call__(self, tensors: Sequence[Tensor | None], values: Sequence[Tensor | None] = ()) -> dict[str, Tensor]:
        """Partial results by site, in double; of a site whose tensor is None they mean nothing. `values` are the
        parameters, for an action that needs them."""


class Measure(Protocol):
    """What is measured of a matrix, row by row."""

    def kernel(self, x: Tensor) -> Any:
        """To be compiled."""

    def eager(self, x: Tensor) -> Any:
        """The same, for where nothing is compiled."""

    def start(self, sites: int, device: torch.device) -> Any: ...
    def add(self, into: Any, made: Any, site: int) -> None:
        """All rows are one site's."""

    def add_rows(self, into: Any, made: Any, sites: Tensor) -> None:
        """Each row is another site's."""

    def finish(self, into: Any, padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
        """Partial results; `padding` is how many zeros were measured with each site."""


@dataclass(slots=True)
class Pack:
    """Tensors that are copied into the buffer at once."""

    members: list[int]
    #: of each member, where in the tensor its copied part begins
    starts: list[int]
    views: list[Tensor]
    #: what the last row has beyond the member
    rests: list[Tensor]
    matrix: Tensor
    #: of each row
    sites: Tensor


@dataclass(slots=True)
class Group:
    """The tensors of one device and width."""

    device: torch.device
    sites: list[int]
    #: sites, and the elements of them that fill rows
    alone: list[tuple[int, int]] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    #: of each site, elements, and zeros that are measured with them
    numel: Tensor = field(default_factory=lambda: torch.zeros(0))
    padding: Tensor = field(default_factory=lambda: torch.zeros(0))


class Together:
    """One measure over many sites."""

    def __init__(self, measure: Measure, forms: Sequence[Form]) -> None:
        self.forms = tuple(forms)
        self._measure = measure
        self._keys = list(dict.fromkeys((f.device, f.wide) for f in forms))
        self._kernel, self.engine = self._choose()

    # -- laid out once -----------------------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> list[Group]:
        return [self._group(key) for key in self._keys]

    def _group(self, key: tuple[torch.device, torch.dtype]) -> Group:
        device, dtype = key
        mine = [site for site, form in enumerate(self.forms) if (form.device, form.wide) == key]
        group, padding = Group(device, mine), torch.zeros(len(self.forms), dtype=torch.float64)
        copied: list[list[tuple[int, int, int]]] = []
        for site in mine:
            form = self.forms[site]
            start = form.numel // WIDTH * WIDTH if form.numel >= ALONE else 0
            if start:
                group.alone.append((site, start))
            if start < form.numel:
                rows = -(-(form.numel - start) // WIDTH)
                padding[site] = rows * WIDTH - (form.numel - start)
                if not copied or (sum(r for *_, r in copied[-1]) + rows) * WIDTH > PACK:
                    copied.append([])
                copied[-1].append((site, start, rows))
        if copied and len(copied[-1]) == 1 and copied[-1][0][2] == 1:
            # A kernel made for any number of rows takes one row for another kind of thing.
            (site, start, _) = copied[-1][0]
            copied[-1][0] = (site, start, 2)
            padding[site] += WIDTH
        most = max((sum(r for *_, r in pack) for pack in copied), default=0)
        buffer = torch.zeros(most, WIDTH, dtype=dtype, device=device)
        group.packs = [self._pack(pack, buffer) for pack in copied]
        group.padding = padding.to(device)
        group.numel = torch.tensor([f.numel for f in self.forms], dtype=torch.float64, device=device)
        return group

    def _pack(self, copied: list[tuple[int, int, int]], buffer: Tensor) -> Pack:
        flat, at = buffer.view(-1), 0
        views, rests, sites = [], [], []
        for site, start, rows in copied:
            numel = self.forms[site].numel - start
            view = flat[at : at + numel]
            views.append(view if start else view.view(self.forms[site].shape))
            rests.append(flat[at + numel : at + rows * WIDTH])
            sites += [site] * rows
            at += rows * WIDTH
        rests = [r for r in rests if len(r)]
        members, starts = [s for s, *_ in copied], [start for _, start, _ in copied]
        return Pack(members, starts, views, rests, buffer[: len(sites)], torch.tensor(sites, device=buffer.device))

    def _choose(self) -> tuple[Callable[..., Any], str]:
        elements = sum(f.numel for f in self.forms)
        if elements < COMPILE_FROM:
            return self._measure.eager, f"eager ({elements:,} elements)"
        compiled = torch.compile(self._measure.kernel, dynamic=True)
        try:
            with torch.no_grad():
                read = {(f.device, f.dtype) for f in self.forms if f.numel >= ALONE}
                for device, dtype in {*self._keys, *read}:
                    compiled(torch.zeros(CACHED, WIDTH, dtype=dtype, device=device))
        except Exception as error:  # no compiler on the machine is normal
            return self._measure.eager, f"eager (no compiled kernel: {type(error).__name__})"
        return compiled, "compiled"

    # -- in a step ---------------------------------------------------------------------------------------------------

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        return len(tensors) == len(self.forms) and all(
            t is None or (t.shape == f.shape and t.dtype == f.dtype and t.device == f.device)
            for t, f in zip(tensors, self.forms, strict=True)
        )

    def __call__(self, tensors: Sequence[Tensor | None], values: Sequence[Tensor | None] = ()) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for group in self._groups:
            into = self._measure.start(len(self.forms), group.device)
            for site, filled in group.alone:
                tensor = tensors[site]
                if tensor is not None:
                    whole = tensor.reshape(-1)[:filled].view(-1, WIDTH)
                    self._measure.add(into, self._kernel(whole), site)
            for pack in group.packs:
                self._copy(pack, tensors, clean=len(group.packs) > 1)
                self._measure.add_rows(into, self._kernel(pack.matrix), pack.sites)
            columns = self._measure.finish(into, group.padding, group.numel)
            if not found:
                found = columns
                continue
            for name, column in columns.items():
                found[name][group.sites] = column[group.sites].to(found[name].device)
        return found

    @staticmethod
    def _copy(pack: Pack, tensors: Sequence[Tensor | None], *, clean: bool) -> None:
        if clean and len(pack.rests) > MANY:
            pack.matrix.zero_()
        elif clean and pack.rests:
            foreach_zero_(pack.rests)
        views, values = [], []
        for site, start, view in zip(pack.members, pack.starts, pack.views, strict=True):
            tensor = tensors[site]
            if tensor is not None:
                views.append(view)
                values.append(tensor.reshape(-1)[start:] if start else tensor)
        if views:
            foreach_copy_(views, values)


def widened(x: Tensor) -> Tensor:
    """In a precision that sums can be taken in."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


#: numbers of each row: those that add up, then the one of which the largest counts, if there is one
Rows = tuple[Tensor, ...]


class Totals:
    """Numbers of each row that add up over a site's rows, and perhaps one of which the largest counts."""

    def __init__(
        self,
        sums: int,
        kernel: Callable[[Tensor], Rows],
        eager: Callable[[Tensor], Rows],
        finish: Callable[..., dict[str, Tensor]],
    ) -> None:
        #: `finish` takes the sums, then padding and numel, then the largest ones
        self._sums, self._kernel, self._eager, self._finish = sums, kernel, eager, finish

    def kernel(self, x: Tensor) -> Rows:
        return self._kernel(widened(x))

    def eager(self, x: Tensor) -> Rows:
        parts = [self._eager(widened(part)) for part in x.split(CACHED)]
        return parts[0] if len(parts) == 1 else tuple(torch.cat(column) for column in zip(*parts, strict=True))

    def start(self, sites: int, device: torch.device) -> tuple[list[Rows], list[Tensor], Tensor]:
        return [], [], torch.zeros(self._sums + 1, sites, dtype=torch.float64, device=device)

    def add(self, into: tuple[list[Rows], list[Tensor], Tensor], made: Rows, site: int) -> None:
        self.add_rows(into, made, torch.full_like(made[0], site, dtype=torch.int64))

    def add_rows(self, into: tuple[list[Rows], list[Tensor], Tensor], made: Rows, sites: Tensor) -> None:
        into[0].append(made)
        into[1].append(sites)

    def finish(
        self, into: tuple[list[Rows], list[Tensor], Tensor], padding: Tensor, numel: Tensor
    ) -> dict[str, Tensor]:
        rows, sites, totals = into
        if not rows:  # no site has an element
            rows, sites = [(totals[0, :0],) * len(totals)], [torch.zeros(0, dtype=torch.int64, device=totals.device)]
        columns = [torch.cat(column) for column in zip(*rows, strict=True)] if len(rows) > 1 else rows[0]
        place = torch.cat(sites) if len(sites) > 1 else sites[0]
        made = torch.stack(list(columns)).double()
        sums = totals[: self._sums].scatter_add_(1, place.expand(self._sums, -1), made[: self._sums])
        largest = [totals[-1].scatter_reduce_(0, place, one, "amax") for one in made[self._sums :]]
        return self._finish(sums, padding, numel, *largest)


class Bins:
    """Which of 2^n kinds each element is, how many are of each, and which kinds go into which of a site's bins."""

    def __init__(self, name: str, kinds: Callable[[Tensor], Tensor], bins: Callable[[torch.dtype], list[int]]) -> None:
        #: a kind of the bin -1 is left out
        self._name, self._kinds, self._bins = name, kinds, bins

    def kernel(self, x: Tensor) -> tuple[Tensor, torch.dtype]:
        return self._kinds(widened(x)), widened(x).dtype

    def eager(self, x: Tensor) -> tuple[Tensor, torch.dtype]:
        parts = [widened(part) for part in x.split(CACHED)]
        return torch.cat([self._kinds(part) for part in parts]), parts[0].dtype

    def start(self, sites: int, device: torch.device) -> dict[str, Tensor]:
        bins = max(self._bins(torch.float32)) + 1
        return {"counts": torch.zeros(sites, bins, dtype=torch.float64, device=device)}

    def add(self, into: dict[str, Tensor], made: Any, site: int) -> None:
        kinds, dtype = made
        counts = torch.bincount(kinds.view(-1), minlength=len(self._bins(dtype)))
        into["counts"][site] += self._folded(counts.unsqueeze(0), dtype, into["counts"].shape[1])[0]

    def add_rows(self, into: dict[str, Tensor], made: Any, sites: Tensor) -> None:
        kinds, dtype = made
        mine, place = sites.unique_consecutive(return_inverse=True)
        width = len(self._bins(dtype))
        index = kinds + (place * width).to(torch.int32).unsqueeze(1)
        counts = torch.bincount(index.view(-1), minlength=len(mine) * width).view(-1, width)
        into["counts"][mine] += self._folded(counts, dtype, into["counts"].shape[1])

    def _folded(self, counts: Tensor, dtype: torch.dtype, bins: int) -> Tensor:
        place = torch.tensor(self._bins(dtype), device=counts.device)
        wide = torch.zeros(len(counts), bins + 1, dtype=torch.float64, device=counts.device)
        return wide.index_add_(1, place % (bins + 1), counts.double())[:, :bins]

    def finish(self, into: dict[str, Tensor], padding: Tensor, numel: Tensor) -> dict[str, Tensor]:
        counts = into["counts"]
        counts[:, 0] -= padding
        return {self._name: counts}


class Norms:
    """Nothing but norms: PyTorch's own, of all tensors in one call."""

    engine = "foreach"

    def __init__(self, forms: Sequence[Form]) -> None:
        self._sites = len(forms)

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        return len(tensors) == self._sites

    def __call__(self, tensors: Sequence[Tensor | None], values: Sequence[Tensor | None] = ()) -> dict[str, Tensor]:
        found = {"norm": self._norms(tensors)}
        return {**found, "weight": self._norms(values)} if values else found

    @staticmethod
    def _norms(tensors: Sequence[Tensor | None]) -> Tensor:
        there = [t for t in tensors if t is not None]
        found = foreach_norm([t.float() if t.element_size() < 4 else t for t in there])
        numbers = iter([n.to(device=there[0].device, dtype=torch.float64) for n in found])
        nothing = torch.zeros((), dtype=torch.float64, device=there[0].device)
        return torch.stack([next(numbers) if t is not None else nothing for t in tensors])
