"""Taps: tensors that code names, so that a hook can reach what is no module's output."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tenterhook.resolve.targets import Target, walk
from tenterhook.rig.points.gradient_hooks import GradientHooks
from tenterhook.rig.points.visitor import Visitor, graph_task_id, is_grad_enabled
from tenterhook.rig.runtime.attached_hook import Site
from tenterhook.rig.runtime.step_clock import Clock
from tenterhook.torch_internals import compiler as dynamo

if TYPE_CHECKING:
    from tenterhook.rig.runtime.attached_hook import LiveHook

#: the tap tables of rigs that have hooks on taps
_tables: list[Taps] = []


def tap(tensor: Tensor, name: str, *, within: nn.Module | None = None) -> Tensor:
    """Name a tensor. `within=self` makes it `blocks.3:probs`; without, it is `:probs`.

    Returns its argument, unless a hook acts on it: then an alias or what the hook returned.
    """
    return _through(tensor, name, within) if _tables else tensor


@dynamo.breaks_graph
def _through(tensor: Tensor, name: str, within: nn.Module | None) -> Tensor:
    for table in tuple(_tables):
        tensor = table.pass_through(tensor, name, within)
    return tensor


class Taps:
    """The taps of one rig, by module and name, found as they run."""

    def __init__(self, root: nn.Module, clock: Clock) -> None:
        # A table left behind would break the graphs of all other models that have taps.
        self._root = weakref.ref(root, lambda _: self.serve([]))
        self._clock = clock
        self._lives: list[LiveHook] = []
        self._active: list[LiveHook] = []
        #: by module, then by name; the root stands for no module
        self._found: weakref.WeakKeyDictionary[nn.Module, dict[str, TapFixture | None]] = weakref.WeakKeyDictionary()

    def serve(self, lives: list[LiveHook]) -> None:
        """The hooks on taps, in plan order; for other hooks than before, taps are matched anew."""
        lives = [live for live in lives if live.hook.point.on == ("tap",)]
        active, before = [live for live in lives if live.active], self._active
        self._active = active
        if lives == self._lives:
            for fixture in self._fixtures() if active != before else ():
                fixture.refresh()
            return
        self._lives = lives
        self._found.clear()
        if self._lives and self not in _tables:
            _tables.append(self)
        elif not self._lives and self in _tables:
            _tables.remove(self)

    def pass_through(self, tensor: Tensor, name: str, within: nn.Module | None) -> Tensor:
        module = within
        if module is None:
            # A tap without a module belongs to the model whose forward is running, or being recomputed.
            task = graph_task_id()
            mine = self._clock.in_forward if task == -1 else self._clock.task == task
            module = self._root() if mine else None
            if module is None:
                if task == -1:
                    self._missed(f":{name}")
                return tensor
        known = self._found.setdefault(module, {})
        key = name if within is not None else f":{name}"
        if key not in known:
            known[key] = self._resolved(name, within)
        fixture = known[key]
        return tensor if fixture is None else fixture(tensor)

    def _missed(self, full: str) -> None:
        for live in self._active:
            if live.hook.selector.matches(full):
                known = next((s for s in live.sites if s.name == full), None)
                site = known or live.add_site(Target(full, "tap", self._root))
                site.skip("the tap ran outside this model's forward (within=model binds it)")

    def _fixtures(self) -> list[TapFixture]:
        return [f for by_name in self._found.values() for f in by_name.values() if f is not None]

    def _resolved(self, name: str, within: nn.Module | None) -> TapFixture | None:
        root = self._root()
        if root is None:
            return None
        full = f":{name}"
        if within is not None:
            path = next((n for n, m in walk(root) if m is within), None)
            if path is None:
                return None
            full = f"{path}:{name}".removeprefix(".")
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
        grads = [s for s in active if s.point == "value_grad"]
        self._visitor = Visitor(values, [s for s in self._sites if s.point == "value"], self._clock)
        self._gradient = GradientHooks(grads, self._clock) if grads else None

    def __call__(self, tensor: Tensor) -> Tensor:
        visitor = self._visitor
        recomputing = graph_task_id() != -1
        fire = visitor.recompute() if recomputing else visitor.always or visitor.begin()
        new = fire(tensor) if fire is not None else None
        if new is not None:
            tensor = new
            if not recomputing:
                visitor.changed(new)
        if self._gradient is not None and tensor.requires_grad and is_grad_enabled():
            hooks = self._gradient
            return hooks.alias(tensor, hooks.on(tensor, hooks.begin(), 0), (id(self), "value_grad"))
        return tensor
