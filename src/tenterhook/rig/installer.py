"""The installer: attached hooks and their registrations, kept in line with which hooks are due."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import NamedTuple

from tenterhook.resolve.resolution import ResolvedHook
from tenterhook.resolve.targets import Target
from tenterhook.rig.points.parameter_grads import ParameterRegistration
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.registrations import Registrations
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.forward_pass import ForwardPasses
from tenterhook.rig.runtime.registration import Registration
from tenterhook.rig.runtime.status import HookEvent


class Schedule(NamedTuple):
    """What the hot paths look at: which hooks act until the next change."""

    active: tuple[AttachedHook, ...] = ()
    #: those of them that may change a value in the forward pass
    modifiers: frozenset[AttachedHook] = frozenset()
    #: those of them whose partial results are merged over ranks
    merging: tuple[AttachedHook, ...] = ()
    #: the step in which another hook becomes due, or no longer is; None if there is none
    next_change: int | None = None
    #: registrations that act, on parameters that may be replaced
    parameters: tuple[ParameterRegistration, ...] = ()
    #: targets that have other names, as long as they are tied
    tied: tuple[Target, ...] = ()


class Installer:
    """Installs hooks, and suspends and removes them as they are due, muted or retired."""

    def __init__(self, environment: Environment, registrations: Registrations) -> None:
        self.environment = environment
        self.registrations = registrations
        #: by id, in plan order
        self.hooks: dict[str, AttachedHook] = {}
        #: hooks taken off while a graph may still recompute with them
        self.retired: list[AttachedHook] = []
        self.schedule = Schedule()
        #: a pipeline tries its stage with empty tensors, which is no forward of the training
        self.paused = False
        #: hooks that were last installed for a graph that may recompute with them
        self._kept: set[AttachedHook] = set()

    @property
    def _passes(self) -> ForwardPasses:
        return self.environment.clock.passes

    @property
    def has_pending_changes(self) -> bool:
        """True if a change waits for the next forward of the root."""
        return bool(self.environment.outdated or self._kept or self.retired)

    def add(self, resolved: ResolvedHook, before: AttachedHook | None = None) -> None:
        """Attach a hook. It takes over the state of `before`, a hook of the same id, if the action is the same."""
        hook = AttachedHook(resolved, self.environment)
        if before is not None and before.definition.fingerprint == hook.definition.fingerprint:
            hook.inherit(before)
        self.hooks[resolved.hook.id] = hook
        self.environment.outdated.add(hook)
        hook.make_batch()
        self.registrations.add(hook)

    def replace_all(self, hooks: Mapping[str, AttachedHook | ResolvedHook]) -> None:
        """Swap all hooks: attached ones are kept, resolved ones are attached, the others are retired."""
        before = dict(self.hooks)
        for id, hook in before.items():
            if hooks.get(id) is not hook:
                self._retire(hook)
        self.hooks.clear()
        for id, given in hooks.items():
            if isinstance(given, AttachedHook):
                self.hooks[id] = given
            else:
                self.add(given, before.get(id))
        self.registrations.sort({hook: i for i, hook in enumerate(self.hooks.values())})

    def _retire(self, hook: AttachedHook) -> None:
        """Take a hook off; what a living graph may recompute with stays, inactive, until that graph is gone."""
        hook.apply(HookEvent.RETIRE)
        self._forget(hook)
        if hook.modifies_forward and self._passes.under_way:
            self.retired.append(hook)  # the forward under way ends as it began
            return
        hook.apply(HookEvent.STOP)
        kept = self._passes.replayable()
        if hook in kept:
            self.retired.append(hook)
            self.registrations.refresh(hook, kept)
        else:
            self.registrations.discard(hook, kept)

    def _forget(self, hook: AttachedHook) -> None:
        self._kept.discard(hook)
        self.environment.outdated.discard(hook)

    def settle_retired(self) -> None:
        """Discard the retired hooks that no living graph needs any more."""
        if not self.retired:
            return
        kept = self._passes.replayable()
        for hook in self.retired:  # some were taken off inside the forward before
            hook.apply(HookEvent.STOP)
            self.registrations.refresh(hook, kept)
        for hook in [r for r in self.retired if r not in kept]:
            self.retired.remove(hook)
            self.registrations.discard(hook, kept)

    def apply_schedule(self) -> None:
        """Bring everything that is registered in line with which hooks are due in this step."""
        step, kept, outdated = self.environment.clock.step, self._passes.replayable(), self.environment.outdated
        for hook in self.hooks.values():
            due = hook.is_due(step) and not self.paused
            unchanged = due == hook.active and (hook in kept) == (hook in self._kept)
            if unchanged and hook not in outdated:
                continue
            if hook.modifies_forward and hook.active != due and self._passes.under_way:
                outdated.add(hook)  # the forward under way ends as it began
                continue
            hook.apply(HookEvent.DUE if due else HookEvent.NOT_DUE)
            self._forget(hook)
            if hook in kept:
                self._kept.add(hook)
            self.registrations.refresh(hook, kept)
            if hook.hook.point.side == "step":
                for site in hook.sites:
                    site.installed = hook.active and site.dormant is None
        self.update_schedule()

    def update_schedule(self) -> None:
        """Note for the hot paths which hooks act."""
        hooks = self.hooks.values()
        active = tuple(hook for hook in hooks if hook.active)
        step = self.environment.clock.step
        changes = (hook.hook.when.next_change(step) for hook in hooks if not hook.status.is_muted)
        self.schedule = Schedule(
            active,
            modifiers=frozenset(hook for hook in active if hook.modifies_forward),
            merging=tuple(hook for hook in active if hook.resolved.merges and hook.partials is not None),
            next_change=min((c for c in changes if c is not None), default=None),
            parameters=tuple(
                one for one in self.registrations if isinstance(one, ParameterRegistration) and one.serving.active
            ),
            tied=tuple(site.target for hook in active for site in hook.sites if site.target.twins),
        )

    def leave(self, taps: Taps) -> None:
        """Leave the model. What a living checkpoint would recompute with stays, inactive, until its graph is gone."""
        everything = [*self.hooks.values(), *self.retired]
        for hook in everything:
            hook.apply(HookEvent.STOP)
            for site in hook.sites:
                site.installed = False
        passes = self._passes
        passes.forget()
        kept = passes.replayable()
        lingering = self.registrations.remove_all(kept)
        taps.set_hooks([hook for hook in everything if hook in kept])
        for forward in passes.recomputing():
            weakref.finalize(forward, _let_go, passes, lingering, taps)
        self.registrations.graphs.update()
        self.registrations.graphs.unwatch()
        self.registrations.clear()
        self.schedule = self.schedule._replace(active=(), parameters=())


def _let_go(passes: ForwardPasses, lingering: list[Registration], taps: Taps) -> None:
    if not passes.recomputing():
        taps.set_hooks([])
        for registration in lingering:
            registration.remove()
