"""Install the hooks that are due, and suspend the others."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from tenterhook.resolve.resolution import ResolvedHook
from tenterhook.rig.points.parameter_grads import ParameterRegistration
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.registrations import Registrations
from tenterhook.rig.runtime.attached_hook import AttachedHook
from tenterhook.rig.runtime.environment import Environment
from tenterhook.rig.runtime.forward_pass import ForwardPasses
from tenterhook.rig.runtime.registration import Registration
from tenterhook.rig.runtime.status import HookEvent
from tenterhook.switch import is_off
from tenterhook.torch_internals import compiler as dynamo


class Schedule(NamedTuple):
    """The hooks that fire until the schedule next changes. The hot paths read this object."""

    active: tuple[AttachedHook, ...] = ()
    #: active hooks that may change a value in the forward pass
    modifiers: frozenset[AttachedHook] = frozenset()
    #: active hooks whose partial results are merged across ranks
    merging: tuple[AttachedHook, ...] = ()
    #: hooks, also inactive ones, whose lowest and highest numbers over the ranks are recorded
    ranging: tuple[AttachedHook, ...] = ()
    #: the next step in which a hook becomes due or stops being due; None if no such step exists
    next_change: int | None = None
    #: active registrations on parameters; the program may replace these parameters
    parameters: tuple[ParameterRegistration, ...] = ()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which would otherwise repeatedly scan up to a hundred thousand new sites."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Installer:
    """An object that installs hooks when they are due, suspends the others, and removes hooks from the plan."""

    def __init__(self, environment: Environment, registrations: Registrations) -> None:
        self.environment = environment
        self.registrations = registrations
        #: the plan's hooks by id, in plan order
        self.hooks: dict[str, AttachedHook] = {}
        #: removed hooks that stay registered because a live graph may use them to recompute its forward pass
        self.retired: list[AttachedHook] = []
        self.schedule = Schedule()
        #: True if `TENTERHOOK=0` is set
        self.off = is_off()
        #: True while no hook fires: always if `off`, or while a pipeline stage runs with empty tensors to infer shapes
        self.paused = self.off
        #: hooks that were kept at the last update because a live graph might use them to recompute its forward pass
        self._kept: set[AttachedHook] = set()

    @property
    def _passes(self) -> ForwardPasses:
        return self.environment.clock.passes

    @property
    def forward_is_running(self) -> bool:
        """Return True if the root is being called, so that modifiers of its forward pass must not change."""
        return self._passes.is_under_way

    @property
    def has_pending_changes(self) -> bool:
        """Return True if a change is waiting for the root's next forward pass."""
        return bool(self.environment.outdated or self._kept or self.retired)

    def add(self, resolved: ResolvedHook, before: AttachedHook | None = None) -> None:
        """Attach a hook. If `before`, the old hook with this id, has the same action, its state is inherited."""
        hook = AttachedHook(resolved, self.environment)
        if before is not None and before.definition.fingerprint == hook.definition.fingerprint:
            hook.inherit(before)
        self.hooks[resolved.hook.id] = hook
        self.environment.outdated.add(hook)
        hook.make_batch()
        self.registrations.add(hook)

    def replace_all(self, hooks: Mapping[str, AttachedHook | ResolvedHook]) -> None:
        """Replace all hooks: keep the given attached hooks, attach the given resolved hooks, and retire the rest."""
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
        """Stop a hook, and remove it as soon as no live graph can use it to recompute its forward pass."""
        hook.apply(HookEvent.RETIRE)
        self._forget(hook)
        if hook.modifies_forward and self.forward_is_running:
            self.retired.append(hook)  # the running forward pass keeps the hooks that it started with
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
        """Remove the retired hooks that no live graph needs anymore."""
        if not self.retired:
            return
        kept = self._passes.replayable()
        for hook in self.retired:  # some were retired during the previous forward pass and fired until it ended
            hook.apply(HookEvent.STOP)
            self.registrations.refresh(hook, kept)
        for hook in [r for r in self.retired if r not in kept]:
            self.retired.remove(hook)
            self.registrations.discard(hook, kept)

    def apply_schedule(self) -> None:
        """Install the hooks that are due in this step, and suspend the others."""
        step, kept, outdated = self.environment.clock.step, self._passes.replayable(), self.environment.outdated
        for hook in self.hooks.values():
            due = hook.is_due(step) and not self.paused
            unchanged = due == hook.active and (hook in kept) == (hook in self._kept)
            if unchanged and hook not in outdated:
                continue
            if hook.modifies_forward and hook.active != due and self.forward_is_running:
                outdated.add(hook)  # the running forward pass keeps the hooks that it started with
                continue
            hook.apply(HookEvent.DUE if due else HookEvent.NOT_DUE)
            self._forget(hook)
            if hook in kept:
                self._kept.add(hook)
            self.registrations.refresh(hook, kept)
            if hook.hook.point.side == "step":
                for site in hook.sites:
                    site.installed = hook.active and not site.blocked
        self.update_schedule()

    def update_schedule(self) -> None:
        """Rebuild the schedule, which tells the hot paths which hooks fire."""
        hooks = self.hooks.values()
        active = tuple(hook for hook in hooks if hook.active)
        step = self.environment.clock.step
        changes = (hook.hook.when.next_change(step) for hook in hooks if not hook.status.is_muted)
        self.schedule = Schedule(
            active,
            modifiers=frozenset(hook for hook in active if hook.modifies_forward),
            merging=tuple(hook for hook in active if hook.resolved.merges and hook.partials is not None),
            ranging=tuple(hook for hook in hooks if hook.definition.across_ranks == "range"),
            next_change=min((c for c in changes if c is not None), default=None),
            parameters=tuple(
                one for one in self.registrations if isinstance(one, ParameterRegistration) and one.serving.active
            ),
        )

    def leave(self, taps: Taps) -> None:
        """Remove all hooks from the model.

        If the recomputation of a live activation checkpoint may use a hook, that hook stays registered, but inactive,
        until the graph is freed.
        """
        everything = [*self.hooks.values(), *self.retired]
        for hook in everything:
            hook.apply(HookEvent.STOP)
            for site in hook.sites:
                site.installed = False
        passes = self._passes
        passes.forget()
        kept = passes.replayable()
        lingering = self.registrations.remove_all(kept, self.environment.model.root())
        taps.set_hooks([hook for hook in everything if hook in kept])
        for forward in passes.recomputing():
            weakref.finalize(forward, _let_go, passes, lingering, taps)
        self.registrations.graphs.update()
        self.registrations.graphs.unwatch()
        self.registrations.clear()
        self.schedule = self.schedule._replace(active=(), parameters=())


class _Cycle:
    """An object that refers to itself, so that it exists until the next garbage collection."""

    def __init__(self) -> None:
        self.itself = self


def _let_go(passes: ForwardPasses, lingering: list[Registration], taps: Taps) -> None:
    """Remove the hooks that stayed registered, after the last graph that may use them was freed.

    The garbage collector may free that graph while the model is compiled. The compiler and the code that it has just
    compiled look up the hooks again, and fail if they are gone. Then, try again at the next collection.
    """
    if passes.recomputing():
        return
    if dynamo.is_in_compiled_call():
        weakref.finalize(_Cycle(), _let_go, passes, lingering, taps)
    else:
        taps.set_hooks([])
        for registration in lingering:
            registration.remove()
