"""Taps: tensors that code names, so that a hook can reach what is no module's output."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tenterhook.rig.clock import Clock
from tenterhook.rig.fire import Fire, chain, make_fire
from tenterhook.rig.forward import (
    Calls,
    alias,
    backward_fire,
    graph_task_id,
    is_grad_enabled,
    note_checkpoint,
    replayer,
)
from tenterhook.rig.ledger import Site
from tenterhook.rig.names import Target, walk

if TYPE_CHECKING:
    from tenterhook.rig.live import LiveHook

#: the tap tables of rigs that have hooks on taps
_tables: list[Taps] = []


def tap(tensor: Tensor, name: str, *, within: nn.Module | None = None) -> Tensor:
    """Name a tensor. `within=self` makes it `blocks.3:probs`; without, it is `:probs`.

    Returns its argument, unless a hook acts on it: then an alias or what the hook returned.
    """
    for table in _tables:
        tensor = table.pass_through(tensor, name, within)
    return tensor


class Taps:
    """The taps of one rig, by module and name, found as they run."""

    def __init__(self, root: weakref.ref[nn.Module], clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._lives: list[LiveHook] = []
        self._active: list[LiveHook] = []
        self._found: dict[tuple[int, str], TapFixture | None] = {}
        self._names: dict[int, str] | None = None

    def serve(self, lives: list[LiveHook]) -> None:
        """The hooks on taps, in plan order; for other hooks than before, taps are matched anew."""
        lives = [live for live in lives if live.hook.point.on == ("tap",)]
        active, before = [live for live in lives if live.active], self._active
        self._active = active
        if lives == self._lives:
            for fixture in self._found.values() if active != before else ():
                if fixture is not None:
                    fixture.refresh()
            return
        self._lives = lives
        self._found.clear()
        self._names = None
        if self._lives and self not in _tables:
            _tables.append(self)
        elif not self._lives and self in _tables:
            _tables.remove(self)

    def remove(self) -> None:
        self.serve([])

    def pass_through(self, tensor: Tensor, name: str, within: nn.Module | None) -> Tensor:
        key = (id(within), name)
        if key not in self._found:
            self._found[key] = self._resolved(name, within)
        fixture = self._found[key]
        return tensor if fixture is None else fixture(tensor)

    def _resolved(self, name: str, within: nn.Module | None) -> TapFixture | None:
        root = self._root()
        if root is None:
            return None
        if self._names is None:
            self._names = {id(m): n for n, m in walk(root)}
        if within is None:
            full = f":{name}"
        elif id(within) in self._names:
            full = f"{self._names[id(within)]}:{name}".removeprefix(".")
        else:
            return None
        target = Target(full, "tap", weakref.ref(within or root))
        sites = []
        for live in self._lives:
            if live.hook.selector.matches(full):
                known = next((s for s in live.sites if s.name == full), None)
                sites.append(known or live.add_site(target))
        return TapFixture(sites, self._clock) if sites else None


class TapFixture:
    def __init__(self, sites: list[Site], clock: Clock) -> None:
        self._sites = sites
        self._clock = clock
        self.refresh()

    def refresh(self) -> None:
        active = [s for s in self._sites if s.live.active]
        for site in self._sites:
            site.installed = site in active
        values = [s for s in active if s.point == "value"]
        self._grads = [s for s in active if s.point == "value_grad"]
        self._fire: Fire | None = chain([make_fire(s) for s in values]) if values else None
        self._calls = Calls(self._clock, active)
        self._replay = replayer([s for s in self._sites if s.point == "value"], self._clock)
        self._modifiers = frozenset(s.live for s in values if s.live.modifies_forward)
        self._make = backward_fire(self._grads, self._clock) if self._grads else None

    def __call__(self, tensor: Tensor) -> Tensor:
        call = 0
        if graph_task_id() != -1:
            replay = self._replay()
            new = replay(tensor) if replay is not None else None
        else:
            call = self._calls.begin()
            self._calls.place(call, 0)
            new = self._fire(tensor) if self._fire is not None else None
            if new is not None:
                note_checkpoint(self._clock, self._modifiers)
        if new is not None:
            tensor = new
        if self._make is not None and tensor.requires_grad and is_grad_enabled():
            return alias(tensor, self._make(self._calls, call, 0, tensor), self._grads)
        return tensor
