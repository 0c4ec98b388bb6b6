"""Implements an attached hook: the action with its bound parameters, the sites, and the state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from tenterhook.actions import BatchMeasure, Context, Definition, TensorSpec
from tenterhook.errors import InPlaceError, ReturnError
from tenterhook.plan import Hook
from tenterhook.resolve.dormancy import GONE, PASSING
from tenterhook.resolve.resolution import ResolvedHook
from tenterhook.resolve.sharding import GLOBAL_POINTS, local
from tenterhook.resolve.targets import Target
from tenterhook.rig.runtime.environment import Environment, GradientWatch
from tenterhook.rig.runtime.failures import describe
from tenterhook.rig.runtime.hook_state import HookState, Partials, SiteState, derive_seed
from tenterhook.rig.runtime.status import HookEvent, HookStatus
from tenterhook.rig.runtime.step_clock import StepClock

#: if an action fails at a site, the site's dormancy reason begins with this word
MUTED = "muted"


class Site:
    """Represents one hook at one target, with its ledger counters.

    The counters are plain ints because firing must be fast.
    """

    __slots__ = (
        "_due",
        "attached",
        "blocked",
        "changed",
        "ctx",
        "dormant",
        "failed",
        "fired",
        "first",
        "installed",
        "last",
        "order",
        "rebound",
        "skipped",
        "slot",
        "target",
    )

    def __init__(self, attached: AttachedHook, target: Target, slot: int) -> None:
        self.attached = attached
        self.target = target
        self.slot = slot
        self.ctx: Context | None = None
        #: True while the site is registered with PyTorch (a hook that is not due in this step is not registered)
        self.installed = False
        #: why the site is dormant, or None if it is not dormant
        self.dormant: str | None = None
        #: True if the site must not fire. A frozen parameter or one without an optimizer is dormant, but not blocked:
        #: if a gradient arrives, the hook fires, whether or not the change was noticed before.
        self.blocked = False
        self.fired = 0
        self.changed = 0
        self.failed = 0
        self.rebound = 0
        #: number of times the site was due but did not fire, by reason
        self.skipped: dict[str, int] | None = None
        #: step numbers of the first and the last firing; -1 before the first firing
        self.first = -1
        self.last = -1
        #: position of the last firing in the order of all firings; comparable only within one step
        self.order = -1
        #: number of steps in which the site was due, minus `attached.due_steps` while the site is not dormant
        self._due = -attached.due_steps

    @property
    def hook(self) -> str:
        """Return the id of the hook."""
        return self.attached.hook.id

    @property
    def point(self) -> str:
        """Return the point of the hook."""
        return self.attached.hook.at

    @property
    def name(self) -> str:
        """Return the name of the target."""
        return self.target.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return the other names of the target."""
        return self.target.aliases

    @property
    def owner(self) -> object:
        """Return the module that the site is on, or the module that has its parameter."""
        return self.target.owner()

    @property
    def due(self) -> int:
        """Return the number of steps in which the site was due and not dormant."""
        return self._due + (0 if self.dormant else self.attached.due_steps)

    def reset(self, due: int = 0) -> None:
        """Reset all counters, and set the number of due steps to `due`.

        Wake the site if it is dormant because its action failed.
        """
        self.fired = self.changed = self.failed = self.rebound = 0
        self.first = self.last = self.order = -1
        self.skipped = None
        if self.muted_itself:
            self.wake()
        self._due = due if self.dormant else due - self.attached.due_steps

    def count(self, clock: StepClock) -> None:
        """Count one firing."""
        self.fired += 1
        self.last = clock.step
        self.order = clock.tick()
        if self.first < 0:
            self.first = clock.step

    def sleep(self, why: str) -> None:
        """Make the site dormant and store the reason."""
        if self.dormant is None:
            self._due = self.due
            self.attached.sleepers.count += 1
        self.dormant = why
        self._block(why not in PASSING)

    def wake(self) -> None:
        if self.dormant is not None:
            self.dormant = None
            self._block(False)
            self.attached.sleepers.count -= 1
            self._due -= self.attached.due_steps

    def _block(self, blocked: bool) -> None:
        self.attached.sleepers.blocks += blocked != self.blocked
        self.blocked = blocked

    @property
    def muted_itself(self) -> bool:
        """Return True if the site is dormant because its action failed."""
        return self.dormant is not None and self.dormant.startswith(MUTED)

    def skip(self, why: str) -> None:
        """Count a firing that was due but did not happen."""
        if self.skipped is None:
            self.skipped = {}
        self.skipped[why] = self.skipped.get(why, 0) + 1

    @property
    def state(self) -> str:
        """Return `"dormant"`, `"muted"`, `"installed"`, or `"idle"` (attached, but not registered in this step)."""
        if self.dormant:
            return "dormant"
        if self.attached.status.is_muted:
            return "muted"
        return "installed" if self.installed else "idle"

    def __repr__(self) -> str:
        return (
            f"<site {self.hook} at {self.point} on {self.name!r}: {self.state}, "
            f"due {self.due}, fired {self.fired}, changed {self.changed}>"
        )


@dataclass(slots=True)
class Sleepers:
    """Counts the dormant sites of a hook."""

    count: int = 0
    #: number of times that a site was blocked or unblocked
    blocks: int = 0


class AttachedHook:
    """Represents a hook that is attached to a model.

    Instances are compared by identity, so a revised hook is not equal to the original, even if both have the same id.
    """

    def __init__(self, resolved: ResolvedHook, environment: Environment) -> None:
        self.resolved = resolved
        self.environment = environment
        self.status = HookStatus.IDLE
        #: copy of `status.acts`, for fast access at each firing
        self.active = False
        #: number of steps in which the hook was due, and the last step that was counted
        self.due_steps = 0
        self.counted = -1
        self.sites: list[Site] = []
        self.sleepers = Sleepers()
        self._names: list[str] = []
        definition, params = resolved.definition, dict(resolved.params)
        self.call: Callable[..., Any] = partial(definition.fn, **params) if params else definition.fn
        self.state = HookState(definition, len(resolved.targets))
        observes = definition.two_phase and not definition.modifies
        self.partials = Partials(definition.partials, len(resolved.targets)) if observes else None
        #: measures all sites in one call; None at points where their tensors are not available at the same time
        self.batch: BatchMeasure | None = None
        #: number of values that the hook reports for each site; 0 before the first report
        self.width = 0
        for target in resolved.targets:
            site = self.add_site(target)
            why = resolved.dormant.get(target.name)
            if why:
                site.sleep(why)

    # -- properties --------------------------------------------------------------------------------------------------

    @property
    def hook(self) -> Hook:
        return self.resolved.hook

    @property
    def definition(self) -> Definition[...]:
        return self.resolved.definition

    @property
    def clock(self) -> StepClock:
        return self.environment.clock

    @property
    def targets(self) -> list[Target]:
        """Return the targets that still exist in the model."""
        return [site.target for site in self.sites if site.dormant != GONE]

    @property
    def names(self) -> list[str]:
        """Return the names of all sites, in slot order."""
        if len(self._names) != len(self.sites):
            self._names = [site.name for site in self.sites]
        return self._names

    @property
    def modifies(self) -> bool:
        """Return True if the action may change values."""
        return self.definition.modifies

    @property
    def modifies_forward(self) -> bool:
        """Return True if the hook may change a value in the forward pass. A recomputation must repeat the change."""
        return self.definition.modifies and self.hook.point.side == "forward"

    @property
    def on_taps(self) -> bool:
        return self.hook.point.on == ("tap",)

    @property
    def has_registrations(self) -> bool:
        """Return False for step points, which run in the optimizer step, and for taps, which are found at run time."""
        return self.hook.point.side != "step" and not self.on_taps

    @property
    def takes_context(self) -> bool:
        return self.definition.takes_ctx and (self.definition.modifies or not self.definition.two_phase)

    @property
    def gradient_watch(self) -> GradientWatch | None:
        """Return the `GradientWatch` that detects abandoned backward passes, or None if this hook needs none."""
        measures = self.partials is not None and self.hook.point.side == "backward"
        return self.environment.gradients if measures and self.environment.model.has_optimizers else None

    def make_batch(self, given: Sequence[Tensor | None] = ()) -> BatchMeasure | None:
        """Prepare to measure all sites at once. A tensor in `given` replaces the parameter in the same slot."""
        make = self.definition.batched
        if make is None or self.hook.at not in ("grad_final", "update"):
            return None
        parameters = [site.target.parameter() for site in self.sites]
        for slot, tensor in enumerate(given):
            parameters[slot] = tensor if tensor is not None else parameters[slot]
        forms = [TensorSpec.of(local(p)) for p in parameters if p is not None]
        whole = len(forms) == len(self.sites) and all(f.measurable for f in forms)
        self.batch = make(forms) if whole and forms else None
        return self.batch

    # -- status ------------------------------------------------------------------------------------------------------

    def apply(self, event: HookEvent) -> None:
        """Update the status after an event."""
        self.status = self.status.after(event)
        self.active = self.status.acts

    def mute(self) -> None:
        """Switch the hook off. If the hook has already fired in this step, the step still counts as due."""
        if any(site.last == self.clock.step for site in self.sites):
            self.count_due()
        self.apply(HookEvent.MUTE)

    def unmute(self) -> None:
        """Switch the hook on again, and wake the sites whose action failed."""
        self.apply(HookEvent.UNMUTE)
        self.environment.outdated.add(self)
        for site in self.sites:
            if site.muted_itself:
                site.wake()

    def reset(self, *, due_steps: int = 0, counted: int = -1, muted: bool = False) -> None:
        """Reset the hook to its initial state, with the given counters."""
        self.due_steps, self.counted = due_steps, counted
        self.apply(HookEvent.MUTE if muted else HookEvent.UNMUTE)
        self.environment.outdated.add(self)
        self.state.clear()
        if self.partials is not None:
            self.partials.clear()
        for site in self.sites:
            site.reset()

    def inherit(self, before: AttachedHook) -> None:
        """Take over the state of another hook with the same action, target by target."""
        for site in before.sites if self.on_taps else ():
            if self.hook.selector.matches(site.name):
                self.add_site(site.target)
        slots = {s.name: s.slot for s in self.sites}
        self.state.carry(before.state, {s.slot: slots[s.name] for s in before.sites if s.name in slots})

    def in_phase(self, training: bool | None = None) -> bool:
        """Return True if the hook fires in this mode. `training` defaults to the current mode of the root module."""
        phase = self.resolved.phase
        if phase == "any":
            return True
        if training is None:
            root = self.environment.model.root()
            training = root is None or root.training
        return training == (phase == "train")

    def count_due(self) -> None:
        """Count the current step as due, unless it was already counted."""
        step = self.clock.step
        if self.counted == step:
            return
        for site in self.sites if self.sleepers.count else ():
            if site.last == step and not site.blocked:
                site.wake()  # the parameter was unfrozen, and a gradient arrived before anything else was noticed
        self.counted = step
        self.due_steps += 1

    def is_due(self, step: int) -> bool:
        """Return True if the schedule selects this step and the hook is not muted."""
        when = self.hook.when
        if self.status.is_muted or not when.due(step):
            return False
        if when.after_trip is None:
            return True
        tripped = self.clock.tripped
        return tripped >= 0 and tripped < step <= tripped + when.after_trip

    def samples(self, x: Tensor) -> bool:
        """Return True if a sink exists and the size of a change to `x` can be measured."""
        recorder = self.environment.recorder
        has_sinks = recorder is not None and recorder.has_sinks
        return has_sinks and x.dtype.is_floating_point and x.layout is torch.strided and not self.resolved.merges

    def fail(self, site: Site, error: Exception) -> None:
        """Handle an error in an action: mute the site and warn, or raise an error that names the hook and the target.

        If several ranks train together, raising at once would leave the other ranks waiting in a collective. Instead,
        the value is left unchanged, and all ranks raise the error together before the next optimizer step.
        """
        site.failed += 1
        told = describe(error, self.resolved, site.name, self.clock.step)
        raises = self.resolved.on_error == "raise"
        if raises and self.environment.errors.shared and self.hook.point.side != "state":
            self.environment.errors.defer(told)
            warnings.warn(
                f"tenterhook stops all ranks before the next optimizer step. {told}", RuntimeWarning, stacklevel=2
            )
            return
        if raises or isinstance(error, InPlaceError | ReturnError):
            raise told from told.__cause__
        same = told.fact if told is error else f"raised {type(error).__name__}:"
        known = any(one.muted_itself and same in (one.dormant or "") for one in self.sites)
        site.sleep(f"{MUTED}: {told.fact}")
        self.environment.outdated.add(self)
        if not known:
            more = "\n  note: the same error at other targets is not reported again" if len(self.sites) > 1 else ""
            warnings.warn(f"tenterhook muted a hook at one target. {told}{more}", RuntimeWarning, stacklevel=2)

    # -- sites -------------------------------------------------------------------------------------------------------

    def add_site(self, target: Target) -> Site:
        site = Site(self, target, len(self.sites))
        self.sites.append(site)
        if len(self.sites) > len(self.resolved.targets):
            self.state.grow(len(self.sites))
            if self.partials is not None:
                self.partials.grow(len(self.sites))
        if self.takes_context:
            site.ctx = self._context(site)
        return site

    def _context(self, site: Site) -> Context:
        recorder = self.environment.recorder
        ctx = Context(
            hook=self.hook.id,
            target=site.name,
            point=self.hook.at,
            rank=recorder.rank if recorder else 0,
            clock=self.clock,
        )
        forward = self.hook.point.side == "forward"
        ctx.state = SiteState(self.state, site.slot, frozen=forward)
        ctx._emit = self._emit
        ctx._keep = self._keep
        if site.target.kind == "parameter":
            ctx._source = partial(_detached, site.target)
        ctx._generator = partial(self._forward_generator, site.name) if forward else self._generator
        return ctx

    def _emit(self, ctx: Context, name: str, value: Tensor) -> None:
        recorder = self.environment.recorder
        if recorder is not None:
            place = (self.hook.id, ctx.target, name, ctx.call, ctx.leaf)
            recorder.errors.contain("recording an emitted number", recorder.emit, *place, value)

    def _keep(self, ctx: Context, tensor: Tensor, to: Literal["cpu"] | None, most: int) -> None:
        recorder = self.environment.recorder
        if recorder is not None:
            place = (self.hook.id, ctx.target, self.clock.step)
            recorder.errors.contain("capturing a tensor", recorder.capture, *place, tensor, to=to, most=most)

    def _generator(self, seed: int, device: torch.device) -> torch.Generator:
        return self.state.generator(self._seed_owner, seed, device)

    @property
    def _seed_owner(self) -> tuple[str | int, ...]:
        """Return the first parts of the random seed: the hook id, plus the rank if values differ between ranks."""
        recorder = self.environment.recorder
        rank = recorder.rank if recorder is not None and self.hook.at not in GLOBAL_POINTS else 0
        return (self.hook.id, rank) if rank else (self.hook.id,)

    def _forward_generator(self, target: str, seed: int, device: torch.device) -> torch.Generator:
        """Return a generator whose seed depends on the forward pass.

        A recomputation or a resumed run therefore draws the same random numbers.
        """
        passes = self.clock.passes
        recomputed = passes.repeated or passes.replayed
        now = recomputed or passes.now
        # A submodule that is called without the root does not begin a new pass, so the clock's step is used.
        step = self.clock.step if recomputed is None else now.step
        generator = torch.Generator(device)
        generator.manual_seed(derive_seed(*self._seed_owner, target, seed, step, now.training, now.index))
        return generator


def _detached(target: Target) -> Tensor | None:
    parameter = target.parameter()
    return None if parameter is None else parameter.detach()
