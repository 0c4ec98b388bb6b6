"""Stores a hook's data: partial results, declared state, other state tensors and random number generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, MutableMapping

import torch
from torch import Tensor

from tenterhook.actions import Definition, Partial
from tenterhook.errors import ContractError
from tenterhook.transfers import send_to_device


class Partials:
    """Collects the partial results of a two-phase observer.

    There is one row for each site. Results are merged as they arrive and cleared at the end of each step.
    """

    def __init__(self, declared: Mapping[str, Partial], sites: int) -> None:
        self.declared = declared
        self._sites = sites
        self.stores: dict[str, Tensor] = {}
        #: sites measured since the last `clear`; kept on the host so that reading it does not wait for a GPU
        self.fired = bytearray(sites)

    def grow(self, sites: int) -> None:
        """Add rows for taps that were found after the rig was attached."""
        missing = sites - self._sites
        if missing > 0:
            self.fired.extend(bytes(missing))
            for name, store in self.stores.items():
                first = _first(self.declared[name].merge)
                self.stores[name] = torch.cat([store, store.new_full((missing, store.shape[1]), first)])
            self._sites = sites

    def add(self, slot: int, parts: Mapping[str, Tensor]) -> None:
        """Merge the partial results of one firing into the site's row."""
        self.fired[slot] = 1
        self._allocate(next(iter(parts.values())).device)
        for name, partial in self.declared.items():
            store = self.stores[name]
            row = store[slot]
            part = parts[name].to(device=store.device, dtype=torch.float64).reshape(partial.width)
            if partial.merge == "sum":
                row.add_(part)
            elif partial.merge == "max":
                # `torch.maximum` propagates a NaN from either argument
                torch.maximum(row, part, out=row)
            else:
                torch.hypot(row, part, out=row)

    def add_together(self, slots: list[int], columns: Mapping[str, Tensor]) -> None:
        """Merge the partial results of many sites. `columns` has one tensor per name, with one row per site."""
        parts = {name: columns[name].reshape(self._sites, p.width) for name, p in self.declared.items()}
        if len(slots) == self._sites and 1 not in self.fired:
            self.stores, self.fired = parts, bytearray(b"\x01") * self._sites
            return
        device = next(iter(columns.values())).device
        self._allocate(device)
        index = send_to_device(slots, device)
        for name, partial in self.declared.items():
            store, part = self.stores[name], parts[name]
            store[index] = _joined(store[index], part[index], partial.merge)
        for slot in slots:
            self.fired[slot] = 1

    def _allocate(self, device: torch.device) -> None:
        for name, partial in self.declared.items() if not self.stores else ():
            self.stores[name] = identity(partial, self._sites, device).reshape(self._sites, partial.width)

    def part(self, device: torch.device) -> dict[str, Tensor]:
        """Return the contribution of this rank to a merge across ranks.

        A site that was not measured on this rank contributes the identity element of the merge. The flags of the sites
        are on the CPU, because the training thread reads them.
        """
        self._allocate(device)
        mine = self._flags(device).bool().unsqueeze(1)
        first = {n: _first(p.merge) for n, p in self.declared.items()}
        parts = {n: torch.where(mine, store, first[n]) for n, store in self.stores.items()}
        return parts | {"fired": self._flags(torch.device("cpu"))}

    def _flags(self, device: torch.device) -> Tensor:
        """Return 1 for each site that was measured, and 0 for the others."""
        if 0 not in self.fired:
            return torch.ones(len(self.fired), dtype=torch.float64, device=device)
        return send_to_device(self.fired, device, torch.float64)

    def take_whole(self, whole: Mapping[str, Tensor]) -> None:
        """Replace all rows with the results that were merged across all ranks."""
        self.fired = bytearray(whole["fired"].to(torch.uint8).tolist())
        self.stores = {n: whole[n] for n in self.declared}

    def take(self) -> dict[str, Tensor] | None:
        """Return and clear the merged results, with a `fired` flag for each site. Return None if no site fired."""
        if not self.stores or 1 not in self.fired:
            return None
        merged = {n: s.squeeze(1) if s.shape[1] == 1 else s for n, s in self.stores.items()}
        device = next(iter(self.stores.values())).device
        merged["fired"] = self._flags(device)
        self.clear()
        return merged

    def clear(self) -> None:
        self.fired, self.stores = bytearray(self._sites), {}

    def carry(self, stores: Mapping[str, Tensor], fired: bytes, slots: Mapping[int, int]) -> None:
        """Take over earlier results. `slots` maps old slots to new slots."""
        old, new = list(slots), list(slots.values())
        for name, partial in self.declared.items():
            store = stores[name].new_full((self._sites, partial.width), _first(partial.merge))
            store[new] = stores[name][old]
            self.stores[name] = store
        self.fired = bytearray(self._sites)
        for slot, place in slots.items():
            self.fired[place] = fired[slot]


def identity(partial: Partial, sites: int, device: torch.device) -> Tensor:
    """Return the identity element of the merge for each site. Merging it with a value leaves the value unchanged."""
    shape = (sites,) if partial.width == 1 else (sites, partial.width)
    return torch.full(shape, _first(partial.merge), dtype=torch.float64, device=device)


def _joined(a: Tensor, b: Tensor, merge: str) -> Tensor:
    # `torch.maximum` propagates a NaN from either argument
    return a + b if merge == "sum" else torch.maximum(a, b) if merge == "max" else torch.hypot(a, b)


def _first(merge: str) -> float:
    return -torch.inf if merge == "max" else 0.0


class HookState:
    """Stores the state of a hook. Declared state is packed into one tensor per name, with one element per site."""

    def __init__(self, definition: Definition[...], sites: int) -> None:
        self.declared = definition.state
        self._sites = sites
        self.packed: dict[str, Tensor] = {}
        #: tensors that an action stored under names it did not declare, by (slot, name)
        self.free: dict[tuple[int, str], Tensor] = {}
        #: writes at forward points, which take effect when the step ends
        self.pending: dict[str, Tensor] = {}
        self.pending_free: dict[tuple[int, str], Tensor] = {}
        #: random number generators, by device and seed
        self.generators: dict[tuple[str, int], torch.Generator] = {}

    def __bool__(self) -> bool:
        return bool(self.declared or self.free or self.pending_free)

    def pack(self, device: torch.device) -> dict[str, Tensor]:
        if not self.packed:
            self.packed = {
                name: torch.full((self._sites,), first, dtype=torch.float64, device=device)
                for name, first in self.declared.items()
            }
        return self.packed

    def grow(self, sites: int) -> None:
        for table in (self.packed, self.pending):
            for name, tensor in table.items():
                table[name] = torch.cat([tensor, tensor.new_full((sites - len(tensor),), self.declared[name])])
        self._sites = max(self._sites, sites)

    def commit(self) -> None:
        """Apply the writes that were made at forward points. Called at the end of each step."""
        if self.pending:
            self.packed.update(self.pending)
            self.pending = {}
        if self.pending_free:
            self.free.update(self.pending_free)
            self.pending_free = {}

    def carry(self, other: HookState, slots: Mapping[int, int]) -> None:
        """Take over the state of another hook. `slots` maps the other hook's slots to this hook's slots."""
        old, new = list(slots), list(slots.values())
        for name, tensor in other.packed.items():
            self.pack(tensor.device)[name][new] = tensor[old]
        for name, tensor in other.pending.items():
            mine = self.pending.setdefault(name, self.pack(tensor.device)[name].clone())
            mine[new] = tensor[old]
        for theirs, table in ((other.free, self.free), (other.pending_free, self.pending_free)):
            table.update({(slots[slot], name): t for (slot, name), t in theirs.items() if slot in slots})
        self.generators = other.generators

    def clear(self) -> None:
        """Reset to the initial state."""
        for table in (self.packed, self.pending, self.free, self.pending_free):
            table.clear()
        self.generators = {}

    def generator(self, whose: tuple[str | int, ...], seed: int, device: torch.device) -> torch.Generator:
        key = (str(device), seed)
        found = self.generators.get(key)
        if found is None:
            found = self.generators[key] = torch.Generator(device)
            found.manual_seed(derive_seed(*whose, seed))
        return found


def derive_seed(*parts: str | int) -> int:
    """Return a seed derived from all parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


class SiteState(MutableMapping[str, Tensor]):
    """Gives an action access to the state of one site, as `ctx.state`."""

    __slots__ = ("_frozen", "_slot", "_state", "device", "writable")

    def __init__(self, state: HookState, slot: int, *, frozen: bool) -> None:
        self._state = state
        self._slot = slot
        #: True at forward points, where reads return values from before the step and writes take effect after it
        self._frozen = frozen
        #: False during a recomputation, which must not write state
        self.writable = True
        self.device = torch.device("cpu")

    def __getitem__(self, name: str) -> Tensor:
        found = self._state.free.get((self._slot, name))
        if name in self._state.declared:
            found = self._state.pack(self.device)[name][self._slot]
        if found is None:
            raise KeyError(
                f"state {name!r} is not set yet. "
                f"Use ctx.state.get({name!r}), or declare it with @th.action(state={{...}})"
            )
        return found.clone() if self._frozen else found

    def __setitem__(self, name: str, value: Tensor) -> None:
        if not self.writable:
            return
        value = value.detach() if isinstance(value, Tensor) else send_to_device(value, self.device)
        state = self._state
        if name in state.declared:
            if value.numel() != 1:
                raise ContractError(
                    f"the declared state {name!r} must be a single number, but has shape {tuple(value.shape)}",
                    remedy="store the tensor under a name that is not declared",
                )
            value = value.reshape(())
            live = state.pack(self.device)
            if self._frozen:
                if name not in state.pending:
                    state.pending[name] = live[name].clone()
                state.pending[name][self._slot] = value
            else:
                live[name][self._slot] = value
        else:
            table = state.pending_free if self._frozen else state.free
            if not isinstance(name, str):
                raise ContractError(
                    f"a state name must be a string, not {name!r}", remedy='write ctx.state["name"] = ...'
                )
            # A restored tensor is contiguous. The original must be contiguous too, because the memory layout affects
            # the last bits of a sum.
            table[self._slot, name] = value.contiguous().clone() if value.layout is torch.strided else value.clone()

    def __delitem__(self, name: str) -> None:
        del self._state.free[self._slot, name]

    def __iter__(self) -> Iterator[str]:
        yield from self._state.declared
        yield from (name for slot, name in self._state.free if slot == self._slot)

    def __len__(self) -> int:
        return sum(1 for _ in self)
