"""Store a rig's registrations. All hooks at the same target and point share one registration."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.plan import Kind
from tenterhook.resolve.model_view import ModelView
from tenterhook.resolve.targets import ModelTargets, Target
from tenterhook.rig.compiled.graph_cache import Graphs
from tenterhook.rig.compiled.graph_tracker import GraphTracker
from tenterhook.rig.points.module_registration import SLOTS, remove_copies
from tenterhook.rig.points.registry import make_registration
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.registration import Registration
from tenterhook.rig.runtime.step_clock import StepClock


class Registrations:
    """The registrations of one rig, stored by place (target and point) and by hook."""

    def __init__(self, view: ModelView, clock: StepClock, rig: int) -> None:
        self.set_targets(view.targets)
        self.graphs = GraphTracker()
        self._clock = clock
        #: the rig's number in this process; rigs fire in the order in which they were attached
        self.rig = rig
        #: True if FSDP2 gathers the parameters for each forward pass
        self._gathered = view.fsdp2
        self._by_place: dict[tuple[str, str, str], Registration] = {}
        #: the registrations of each hook, in the order of its sites
        self._by_hook: dict[AttachedHook, list[Registration]] = {}

    def set_targets(self, targets: ModelTargets) -> None:
        """Store the model's targets as they were last resolved, and the identities of its modules and parameters."""
        self.targets = targets
        self.objects: dict[tuple[Kind, str], int] = {
            **{("module", name): id(target.owner()) for name, target in targets.modules.items()},
            **{("parameter", name): id(target.parameter()) for name, target in targets.parameters.items()},
        }

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._by_place.values())

    def __len__(self) -> int:
        return len(self._by_place)

    def of_hook(self, hook: AttachedHook) -> list[Registration]:
        """Return a hook's registrations in the order of its sites.

        Hooks at step points or on taps have no registrations.
        """
        return self._by_hook.get(hook, [])

    def add(self, hook: AttachedHook) -> None:
        """Add each site of a hook to the registration for its target and point. Create missing registrations."""
        if hook.has_registrations:
            self._by_hook[hook] = [self._join(site) for site in hook.sites]

    def add_site(self, site: Site) -> None:
        if site.attached.has_registrations:
            self._by_hook[site.attached].append(self._join(site))

    def _join(self, site: Site) -> Registration:
        """Add a site to the registration for its target and point. Create the registration if it does not exist."""
        target = site.target
        place = (target.kind, target.name, site.point)
        found = self._by_place.get(place)
        if found is None:
            found = self._by_place[place] = make_registration(
                target, site.point, self._clock, self.rig, self.graphs.touched, gathered=self._gathered
            )
            if self.targets.in_graph(target):
                found.expect()
        elif found.target is not target:  # another hook selected the object that had this name before
            found.move(target)
        found.sites.append(site)
        return found

    def move(self, site: Site, target: Target, *, moved: bool) -> None:
        """Move a site's registration to the target that now has the site's name."""
        registrations = self._by_hook.get(site.attached)
        if registrations:
            found = registrations[site.slot]
            if moved or found.target is not target:
                found.move(target)

    def refresh(self, hook: AttachedHook, kept: frozenset[Hashable]) -> None:
        """Install or suspend a hook's registrations according to the hook's status."""
        for one in self.of_hook(hook):
            one.refresh(kept)

    def refresh_site(self, site: Site, kept: frozenset[Hashable]) -> None:
        registrations = self._by_hook.get(site.attached)
        if registrations:
            registrations[site.slot].refresh(kept)

    def discard(self, hook: AttachedHook, kept: frozenset[Hashable]) -> None:
        """Remove a hook, and every registration that no other hook uses."""
        for one in self._by_hook.pop(hook, ()):
            one.sites = [s for s in one.sites if s.attached is not hook]
            one.refresh(kept)
            if not one.sites and not one.status.stays:
                one.remove()
                self._by_place.pop((one.target.kind, one.target.name, one.point), None)

    def sort(self, order: Mapping[AttachedHook, int]) -> None:
        """Sort the sites of each registration, so that they fire in plan order."""
        for one in self:
            one.sites.sort(key=lambda site: order.get(site.attached, -1))

    def remove_all(self, kept: frozenset[Hashable], model: nn.Module | None) -> list[Registration]:
        """Remove all registrations, except those that a live graph may use to recompute, and return the exceptions."""
        lingering = [one for one in self if any(s.attached in kept for s in one.sites)]
        for one in self:
            if one in lingering:
                one.refresh(kept)
            else:
                one.remove()
        kept_keys = {one.handle.id for one in lingering if one.handle is not None}
        for module in model.modules() if model is not None else ():
            for slot in SLOTS:
                remove_copies(module, slot, lambda key, place: place[1] == self.rig and key not in kept_keys)
        return lingering

    def leave_renamed(self) -> None:
        """Remove the registrations of names that no longer exist from modules that now have other names."""
        here = {id(target.owner()) for target in self.targets.modules.values()}
        for one in self:
            if one.target.kind == "module" and one.is_gone and id(one.target.owner()) in here:
                one.remove()

    def remove_stale(self) -> None:
        """Remove functions from parameters that a registration has left, but that the model has under another name."""
        live = {one.handle.id for one in self if one.handle is not None}
        parameters = [target.parameter() for target in self.targets.parameters.values()]
        for parameter in parameters:
            for slot in private.HOOK_SLOTS:
                hooks = (private.tensor_hooks(parameter, slot) if parameter is not None else None) or OrderedDict()
                for key in [k for k, fn in hooks.items() if getattr(fn, "place", (0, -1))[1] == self.rig]:
                    if key not in live:
                        del hooks[key]

    def clear(self) -> None:
        self._by_place.clear()
        self._by_hook.clear()

    def graph_report(self) -> Graphs:
        """Return how many compiled graphs contain these registrations, and how many graphs were dropped."""
        return self.graphs.report(list(self))
