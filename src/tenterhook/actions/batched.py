"""Measure many tensors at once: small ones are copied side by side into rows, large ones are read where they are.

The layout, and whether the reduction is compiled, are chosen once, from the shapes at attach.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tenterhook.actions.row_measures import CACHED_ROWS, ROW_WIDTH, RowMeasure
from tenterhook.torch_internals import foreach_copy_, foreach_norm, foreach_zero_

#: elements from which on a tensor is read where it is, not copied
READ_IN_PLACE_FROM = 2**18
#: elements that are copied side by side before they are reduced
PACK_ELEMENTS = 2**20
#: elements of a hook from which on making a kernel takes less time than it saves in a thousand steps
COMPILE_FROM = 2**22
#: pieces of a buffer from which on it is quicker to clear all of it
CLEAR_ALL_FROM = 256


class TensorSpec(NamedTuple):
    """Shape, dtype and device that a tensor must have to be measured at its place."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        return cls(tensor.shape, tensor.dtype, tensor.device)

    @property
    def numel(self) -> int:
        return self.shape.numel()

    @property
    def measurable(self) -> bool:
        return self.dtype.is_floating_point and self.device.type != "meta"

    @property
    def sum_dtype(self) -> torch.dtype:
        """A precision that sums can be taken in."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32


class BatchMeasure(Protocol):
    """Measure the tensors of all of a hook's sites at once."""

    engine: str

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        """Return True if it was made for tensors like these."""

    def __call__(self, tensors: Sequence[Tensor | None], values: Sequence[Tensor | None] = ()) -> dict[str, Tensor]:
        """Return partial results by site, in double; those of a site whose tensor is None mean nothing.

        `values` are the parameters, for an action that needs them.
        """


class Piece(NamedTuple):
    """The piece of a site's tensor that is copied: from which element on, and into how many rows."""

    site: int
    start: int
    rows: int


@dataclass(slots=True)
class Pack:
    """Parts of tensors that are copied into the buffer at once."""

    pieces: list[Piece]
    #: of each piece, where in the buffer it is copied to
    views: list[Tensor]
    #: what last rows have beyond their pieces
    tails: list[Tensor]
    matrix: Tensor
    #: of each row
    sites: Tensor


@dataclass(slots=True)
class Group:
    """The tensors of one device and one precision of sums."""

    device: torch.device
    sites: list[int]
    #: sites read where they are, and how many of their elements fill rows
    in_place: list[tuple[int, int]] = field(default_factory=list)
    packs: list[Pack] = field(default_factory=list)
    #: of each site, elements, and zeros that are measured with them
    numel: Tensor = field(default_factory=lambda: torch.zeros(0))
    padding: Tensor = field(default_factory=lambda: torch.zeros(0))


class PackedMeasure:
    """One row measure over many sites, whose tensors are packed into rows."""

    def __init__(self, measure: RowMeasure, specs: Sequence[TensorSpec]) -> None:
        self.specs = tuple(specs)
        self._measure = measure
        self._keys = list(dict.fromkeys((s.device, s.sum_dtype) for s in specs))
        self._kernel, self.engine = self._choose_kernel()

    # -- laid out once -----------------------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> list[Group]:
        return [self._group(key) for key in self._keys]

    def _group(self, key: tuple[torch.device, torch.dtype]) -> Group:
        device, dtype = key
        mine = [site for site, spec in enumerate(self.specs) if (spec.device, spec.sum_dtype) == key]
        group, padding = Group(device, mine), torch.zeros(len(self.specs), dtype=torch.float64)
        packed: list[list[Piece]] = []
        for site in mine:
            numel = self.specs[site].numel
            start = numel // ROW_WIDTH * ROW_WIDTH if numel >= READ_IN_PLACE_FROM else 0
            if start:
                group.in_place.append((site, start))
            if start < numel:
                rows = -(-(numel - start) // ROW_WIDTH)
                padding[site] = rows * ROW_WIDTH - (numel - start)
                if not packed or (sum(piece.rows for piece in packed[-1]) + rows) * ROW_WIDTH > PACK_ELEMENTS:
                    packed.append([])
                packed[-1].append(Piece(site, start, rows))
        if packed and len(packed[-1]) == 1 and packed[-1][0].rows == 1:
            # A kernel made for any number of rows takes one row for another kind of thing.
            packed[-1][0] = packed[-1][0]._replace(rows=2)
            padding[packed[-1][0].site] += ROW_WIDTH
        most = max((sum(piece.rows for piece in pieces) for pieces in packed), default=0)
        buffer = torch.zeros(most, ROW_WIDTH, dtype=dtype, device=device)
        group.packs = [self._pack(pieces, buffer) for pieces in packed]
        group.padding = padding.to(device)
        group.numel = torch.tensor([s.numel for s in self.specs], dtype=torch.float64, device=device)
        return group

    def _pack(self, pieces: list[Piece], buffer: Tensor) -> Pack:
        flat, at = buffer.view(-1), 0
        views, tails, sites = [], [], []
        for piece in pieces:
            numel = self.specs[piece.site].numel - piece.start
            view = flat[at : at + numel]
            views.append(view if piece.start else view.view(self.specs[piece.site].shape))
            tails.append(flat[at + numel : at + piece.rows * ROW_WIDTH])
            sites += [piece.site] * piece.rows
            at += piece.rows * ROW_WIDTH
        tails = [tail for tail in tails if len(tail)]
        return Pack(pieces, views, tails, buffer[: len(sites)], torch.tensor(sites, device=buffer.device))

    def _choose_kernel(self) -> tuple[Callable[..., Any], str]:
        elements = sum(s.numel for s in self.specs)
        if elements < COMPILE_FROM:
            return self._measure.eager, f"eager ({elements:,} elements)"
        compiled = torch.compile(self._measure.kernel, dynamic=True)
        try:
            with torch.no_grad():
                read = {(s.device, s.dtype) for s in self.specs if s.numel >= READ_IN_PLACE_FROM}
                for device, dtype in {*self._keys, *read}:
                    compiled(torch.zeros(CACHED_ROWS, ROW_WIDTH, dtype=dtype, device=device))
        except Exception as error:  # no compiler on the machine is normal
            return self._measure.eager, f"eager (no compiled kernel: {type(error).__name__})"
        return compiled, "compiled"

    # -- in a step ---------------------------------------------------------------------------------------------------

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        return len(tensors) == len(self.specs) and all(
            t is None or (t.shape == s.shape and t.dtype == s.dtype and t.device == s.device)
            for t, s in zip(tensors, self.specs, strict=True)
        )

    def __call__(self, tensors: Sequence[Tensor | None], values: Sequence[Tensor | None] = ()) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for group in self._groups:
            into = self._measure.start(len(self.specs), group.device)
            for site, filled in group.in_place:
                tensor = tensors[site]
                if tensor is not None:
                    whole = tensor.reshape(-1)[:filled].view(-1, ROW_WIDTH)
                    self._measure.add_site(into, self._kernel(whole), site)
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
        if clean and len(pack.tails) > CLEAR_ALL_FROM:
            pack.matrix.zero_()
        elif clean and pack.tails:
            foreach_zero_(pack.tails)
        views, values = [], []
        for (site, start, _), view in zip(pack.pieces, pack.views, strict=True):
            tensor = tensors[site]
            if tensor is not None:
                views.append(view)
                values.append(tensor.reshape(-1)[start:] if start else tensor)
        if views:
            foreach_copy_(views, values)


class ForeachNorms:
    """Nothing but norms: PyTorch's own operation, over all tensors in one call."""

    engine = "foreach"

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._sites = len(specs)

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
