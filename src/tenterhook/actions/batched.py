"""Measure many tensors at once.

Small tensors are copied into the rows of one buffer. Large tensors are read in place. Based on the shapes, `attach`
chooses the layout and decides whether to compile the reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tenterhook.actions.row_measures import CACHED_ROWS, ROW_WIDTH, RowMeasure
from tenterhook.torch_internals import foreach_copy_, foreach_norm, foreach_zero_
from tenterhook.transfers import send_to_device

#: a tensor with at least this many elements is read in place instead of being copied
READ_IN_PLACE_FROM = 2**18
#: maximum number of elements that are copied into the buffer before they are reduced
PACK_ELEMENTS = 2**20
#: if a hook has at least this many elements, a compiled kernel saves more time in a thousand steps than compiling takes
COMPILE_FROM = 2**22
#: if more row ends than this must be cleared, clearing the whole buffer is faster
CLEAR_ALL_FROM = 256


class TensorSpec(NamedTuple):
    """The shape, dtype and device that a site's tensor must have."""

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
        """Return a dtype that is precise enough for sums."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32


class ChangeTogether(NamedTuple):
    """The functions with which a modifier changes many tensors at once."""

    #: changes tensors in place, given the merged results (one row for each tensor, or one for all), the values of the
    #: model's parameters if the action needs them, and the parameters of the action
    change: Callable[..., None]
    #: returns the partial results of a two-phase modifier, with one row for each tensor
    measure: Callable[[list[Tensor]], dict[str, Tensor]] | None = None


class BatchMeasure(Protocol):
    """An object that measures the tensors of all sites of a hook at once."""

    engine: str

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        """Return True if the shapes, dtypes and devices of the tensors are those for which this measure was created."""

    def __call__(self, tensors: Sequence[Tensor | None], values: Sequence[Tensor | None] = ()) -> dict[str, Tensor]:
        """Return partial results in double precision, one row for each site.

        The row of a site whose tensor is None is undefined. `values` contains the parameters, for actions that need
        them.
        """


class Piece(NamedTuple):
    """A part of a site's tensor that is copied, with its first element and the number of rows that it fills."""

    site: int
    start: int
    rows: int


@dataclass(slots=True)
class Pack:
    """The pieces of tensors that are copied into the buffer in one operation."""

    pieces: list[Piece]
    #: for each piece, the part of the buffer that it is copied to
    views: list[Tensor]
    #: the unfilled end of each piece's last row
    tails: list[Tensor]
    matrix: Tensor
    #: for each row, its site
    sites: Tensor


@dataclass(slots=True)
class Group:
    """The layout of the tensors that are on one device and are summed in the same dtype."""

    device: torch.device
    sites: list[int]
    #: sites that are read in place, each with the number of its elements that fill whole rows
    in_place: list[tuple[int, int]]
    packs: list[Pack]
    #: for each site, the number of elements, and the number of zeros that were added to fill its rows
    numel: Tensor
    padding: Tensor


class PackedMeasure:
    """A measure that applies a row measure to many sites, whose tensors are packed into rows."""

    def __init__(self, measure: RowMeasure, specs: Sequence[TensorSpec]) -> None:
        self.specs = tuple(specs)
        self._measure = measure
        self._keys = list(dict.fromkeys((s.device, s.sum_dtype) for s in specs))
        self._kernel, self.engine = self._choose_kernel()

    # -- the layout, chosen once -------------------------------------------------------------------------------------

    @cached_property
    def _groups(self) -> list[Group]:
        return [self._group(key) for key in self._keys]

    def _group(self, key: tuple[torch.device, torch.dtype]) -> Group:
        device, dtype = key
        mine = [site for site, spec in enumerate(self.specs) if (spec.device, spec.sum_dtype) == key]
        in_place, padding = [], [0.0] * len(self.specs)
        packed: list[list[Piece]] = []
        for site in mine:
            numel = self.specs[site].numel
            start = numel // ROW_WIDTH * ROW_WIDTH if numel >= READ_IN_PLACE_FROM else 0
            if start:
                in_place.append((site, start))
            if start < numel:
                rows = -(-(numel - start) // ROW_WIDTH)
                padding[site] = rows * ROW_WIDTH - (numel - start)
                if not packed or (sum(piece.rows for piece in packed[-1]) + rows) * ROW_WIDTH > PACK_ELEMENTS:
                    packed.append([])
                packed[-1].append(Piece(site, start, rows))
        if packed and len(packed[-1]) == 1 and packed[-1][0].rows == 1:
            # torch.compile(dynamic=True) specializes on a single row, so it would compile a second kernel.
            packed[-1][0] = packed[-1][0]._replace(rows=2)
            padding[packed[-1][0].site] += ROW_WIDTH
        most = max((sum(piece.rows for piece in pieces) for pieces in packed), default=0)
        buffer = torch.zeros(most, ROW_WIDTH, dtype=dtype, device=device)
        return Group(
            device,
            mine,
            in_place,
            [self._pack(pieces, buffer) for pieces in packed],
            numel=send_to_device([s.numel for s in self.specs], device, torch.float64),
            padding=send_to_device(padding, device, torch.float64),
        )

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
        return Pack(pieces, views, tails, buffer[: len(sites)], send_to_device(sites, buffer.device))

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
        except Exception as error:  # many machines have no compiler
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
    """A measure that computes only norms, with one call to PyTorch's foreach norm operation for all tensors."""

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
