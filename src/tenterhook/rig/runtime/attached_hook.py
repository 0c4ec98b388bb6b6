"""A hook that is attached: its code bound to parameters, its sites, its state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tenterhook.actions import BatchMeasure, Context, TensorSpec
from tenterhook.errors import HookError, InPlaceError, ReturnError, TenterhookError
from tenterhook.resolve.resolution import Claim
from tenterhook.resolve.sharding import GLOBAL, local
from tenterhook.resolve.targets import Target
from tenterhook.rig.runtime.hook_state import HookState, Partials, SiteState, mixed
from tenterhook.rig.runtime.step_clock import Clock

if TYPE_CHECKING:
    from tenterhook.record import Recorder
    from tenterhook.rig.runtime.registration import Fixture

#: how the reason of a site that muted itself begins
MUTED = "muted"


GONE = "no longer on the model under this name"


class Site:
    """One hook at one target: its place, and its line in the ledger. Counters are bare ints: firing is hot."""

    __slots__ = (
        "_due_before", "_due_since", "bound", "changed", "ctx", "dormant", "failed", "fired", "first", "installed",
        "last", "live", "order", "rebound", "skipped", "slot", "target",
    )  # fmt: skip

    def __init__(self, live: LiveHook, target: Target, slot: int) -> None:
        self.live = live
        self.target = target
        self.slot = slot
        #: id of the parameter that an optimizer's step last found at the name
        self.bound: int | None = None
        self.ctx: Context | None = None
        #: registered with PyTorch now; a hook that is not due in this step is not
        self.installed = False
        #: why it cannot fire as the model stands
        self.dormant: str | None = None
        self.fired = 0
        self.changed = 0
        self.failed = 0
        self.rebound = 0
        #: how often it was due but let pass, by reason
        self.skipped: dict[str, int] | None = None
        #: steps of the first and the last firing, -1 before
        self.first = -1
        self.last = -1
        #: place in the order of firings; compare within a step
        self.order = -1
        self._due_before = 0
        self._due_since = live.due_steps

    @property
    def hook(self) -> str:
        return self.live.hook.id

    @property
    def point(self) -> str:
        return self.live.hook.at

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def due(self) -> int:
        """Steps in which it was due and could fire."""
        return self._due_before + (0 if self.dormant else self.live.due_steps - self._due_since)

    def begin_anew(self, due: int = 0) -> None:
        """Every counter at zero, but for the steps it was due in."""
        self.fired = self.changed = self.failed = self.rebound = 0
        self.first = self.last = self.order = -1
        self.skipped = None
        if self.dormant is not None and self.dormant.startswith(MUTED):
            self.dormant = None
        self._due_before, self._due_since = due, self.live.due_steps

    def sleep(self, why: str) -> None:
        if self.dormant is None:
            self._due_before = self.due
        self.dormant = why
        self.live.sleeps = True

    def wake(self) -> None:
        if self.dormant is not None:
            self.dormant = None
            self._due_since = self.live.due_steps

    def skip(self, why: str) -> None:
        if self.skipped is None:
            self.skipped = {}
        self.skipped[why] = self.skipped.get(why, 0) + 1

    @property
    def state(self) -> str:
        """One word: dormant, muted, installed, or idle (attached, not due in this step)."""
        if self.dormant:
            return "dormant"
        if self.live.muted:
            return "muted"
        return "installed" if self.installed else "idle"

    def __repr__(self) -> str:
        return (
            f"<site {self.hook} at {self.point} on {self.name!r}: {self.state}, "
            f"due {self.due}, fired {self.fired}, changed {self.changed}>"
        )


_OTHERWISE = {
    "raise": 'on_error="mute" goes on without the hook',
    "mute": 'on_error="raise" stops instead of going on without it',
}


#: one step of so many is looked at more closely
SAMPLED = 10


def _always() -> bool:
    return True


def _detached(target: Target) -> Tensor | None:
    parameter = target.parameter()
    return None if parameter is None else parameter.detach()


class LiveHook:
    """Compared by identity: a revised hook of the same id is another one."""

    def __init__(self, claim: Claim, clock: Clock, recorder: Recorder | None) -> None:
        self.claim = claim
        self.hook = claim.hook
        self.definition = claim.definition
        self.clock = clock
        self.recorder = recorder
        self.due_steps = 0
        self.counted = -1
        self.muted = False
        #: due in this step and not muted
        self.active = False
        #: what its fixtures were last put up for: (due, kept for recomputation); None if that is out of date
        self.standing: tuple[bool, bool] | None = None
        #: some site is, or was, dormant
        self.sleeps = False
        self.fixtures: list[Fixture] = []
        #: whether the root is in training mode; the rig says
        self.training: Callable[[], bool] = _always
        #: what wants to know that a backward with it has ended
        self.at_backward_end: Callable[[], None] | None = None
        self.sites: list[Site] = []
        self._names: list[str] = []
        definition, params = claim.definition, dict(claim.params)
        self.call: Callable[..., Any] = partial(definition.fn, **params) if params else definition.fn
        self.measure = definition.measure
        self.state = HookState(definition, len(claim.targets))
        observes = definition.two_phase and not definition.modifies
        self.partials = Partials(definition.partials, len(claim.targets)) if observes else None
        #: measures all its sites at once, where they come at once
        self.gauge: BatchMeasure | None = None
        #: numbers that it reports of each site; 0 until it has
        self.width = 0
        for target in claim.targets:
            site = self.add_site(target)
            why = claim.dormant.get(target.name)
            if why:
                site.sleep(why)

    @property
    def targets(self) -> list[Target]:
        """What it is on now; a site whose target has gone from the model is left out."""
        return [site.target for site in self.sites if site.dormant != GONE]

    @property
    def names(self) -> list[str]:
        """Of its sites, by slot."""
        if len(self._names) != len(self.sites):
            self._names = [site.name for site in self.sites]
        return self._names

    @property
    def reads_only(self) -> bool:
        """Its numbers may be made of the partial results whenever somebody asks."""
        return self.definition.batched is not None and not self.definition.state and not self.definition.trigger

    @property
    def modifies_forward(self) -> bool:
        """May change a value in the forward pass, so a recomputation must see it again."""
        return self.definition.modifies and self.hook.point.side == "forward"

    @property
    def has_fixtures(self) -> bool:
        """Not at step points, which the optimizer's step dispatches, nor on taps, which are found as they run."""
        return self.hook.point.side != "step" and self.hook.point.on != ("tap",)

    @property
    def wants_ctx(self) -> bool:
        return self.definition.takes_ctx and (self.definition.modifies or not self.definition.two_phase)

    def make_gauge(self, given: Sequence[Tensor | None] = ()) -> BatchMeasure | None:
        """For the sites as they are now; the optimizer's step gives all their tensors at once."""
        make = self.definition.batched
        if make is None or self.hook.at not in ("grad_final", "update"):
            return None
        parameters = [site.target.parameter() for site in self.sites]
        for slot, tensor in enumerate(given):
            parameters[slot] = tensor if tensor is not None else parameters[slot]
        forms = [TensorSpec.of(local(p)) for p in parameters if p is not None]
        whole = len(forms) == len(self.sites) and all(f.measurable for f in forms)
        self.gauge = make(forms) if whole and forms else None
        return self.gauge

    def silence(self) -> None:
        """Mute it; a step in which it has fired already counts as due."""
        if any(site.last == self.clock.step for site in self.sites):
            self.count_due()
        self.muted = True

    def inherit(self, before: LiveHook) -> None:
        """Take over the state of another hook with the same action, target by target."""
        for site in before.sites if self.hook.point.on == ("tap",) else ():
            if self.hook.selector.matches(site.name):
                self.add_site(site.target)
        slots = {s.name: s.slot for s in self.sites}
        self.state.carry(before.state, {s.slot: slots[s.name] for s in before.sites if s.name in slots})

    def begin_anew(self) -> None:
        """As if it had just been attached."""
        self.due_steps, self.counted, self.muted, self.standing = 0, -1, False, None
        self.state.clear()
        if self.partials is not None:
            self.partials.clear()
        for site in self.sites:
            site.begin_anew()

    def add_site(self, target: Target) -> Site:
        site = Site(self, target, len(self.sites))
        self.sites.append(site)
        if len(self.sites) > len(self.claim.targets):
            self.state.grow(len(self.sites))
            if self.partials is not None:
                self.partials.grow(len(self.sites))
        if self.wants_ctx:
            site.ctx = self._context(site)
        return site

    def _context(self, site: Site) -> Context:
        ctx = Context(
            hook=self.hook.id, target=site.name, point=self.hook.at,
            rank=self.recorder.rank if self.recorder else 0, clock=self.clock,
        )  # fmt: skip
        forward = self.hook.point.side == "forward"
        ctx.state = SiteState(self.state, site.slot, frozen=forward)
        ctx._emit = self._emit
        ctx._keep = self._keep
        if site.target.kind == "parameter":
            ctx._source = partial(_detached, site.target)
        ctx._generator = partial(self._forward_generator, site.name) if forward else self._generator
        return ctx

    def _emit(self, ctx: Context, name: str, value: Tensor) -> None:
        if self.recorder is not None:
            self.recorder.emit(self.hook.id, ctx.target, name, ctx.call, ctx.leaf, value)

    def _keep(self, ctx: Context, tensor: Tensor) -> None:
        if self.recorder is not None:
            self.recorder.capture(self.hook.id, ctx.target, self.clock.step, tensor)

    def _generator(self, seed: int, device: torch.device) -> torch.Generator:
        return self.state.generator(self._whose, seed, device)

    @property
    def _whose(self) -> tuple[str | int, ...]:
        """Whose random numbers: all ranks' of what is the same on all, a rank's own of its own batch."""
        rank = self.recorder.rank if self.recorder is not None and self.hook.at not in GLOBAL else 0
        return (self.hook.id, rank) if rank else (self.hook.id,)

    def _forward_generator(self, target: str, seed: int, device: torch.device) -> torch.Generator:
        """Seeded by the pass, so that a recomputation draws the same, and a resumed run too."""
        clock = self.clock
        now = clock.replayed or clock.now
        # A part that is called without the root begins no pass of its own, but the step goes on.
        step = clock.step if clock.replayed is None else now.step
        generator = torch.Generator(device)
        generator.manual_seed(mixed(*self._whose, target, seed, step, now.training, now.index))
        return generator

    def samples(self, x: Tensor) -> bool:
        """Whether it is measured how much this firing changes: in one step of ten, if somebody records."""
        return (
            self.clock.step % SAMPLED == 1 and self.recorder is not None and self.recorder.has_sinks
            and x.dtype.is_floating_point and x.layout is torch.strided and not self.claim.merges
        )  # fmt: skip

    def in_phase(self, training: bool | None = None) -> bool:
        phase = self.claim.phase
        return phase == "any" or (self.training() if training is None else training) == (phase == "train")

    def count_due(self) -> None:
        """This step counts as due; once, however often it is said."""
        if self.counted != self.clock.step:
            self.counted = self.clock.step
            self.due_steps += 1

    def due(self, step: int) -> bool:
        when = self.hook.when
        if self.muted or not when.due(step):
            return False
        if when.after_trip is None:
            return True
        tripped = self.clock.tripped
        return tripped >= 0 and tripped < step <= tripped + when.after_trip

    def failed(self, site: Site, error: Exception) -> None:
        """An action raised. Mute the site and say so, or raise with the place; on several ranks, which wait for each
        other in the backward, the value passes, and all raise before the optimizer's step."""
        site.failed += 1
        place: dict[str, Any] = {"hook": self.hook.id, "target": site.name, "point": self.hook.at}
        if isinstance(error, TenterhookError):
            told: TenterhookError = error.located(**place)
            cause = error.__cause__
        else:
            told = HookError(
                f"its action {self.definition.name} raised {type(error).__name__}: {error} (step {self.clock.step})",
                **place,
                remedy=f"mend the action; {_OTHERWISE[self.claim.on_error]}",
            )
            cause = error
        if self.claim.on_error == "raise" and self.clock.shared and self.hook.point.side != "state":
            told.__cause__ = cause
            self.clock.poison = self.clock.poison or told
            warnings.warn(f"tenterhook stops all ranks before the next step. {told}", RuntimeWarning, stacklevel=2)
            return
        if self.claim.on_error == "raise" or isinstance(error, InPlaceError | ReturnError):
            raise told from cause
        site.sleep(f"{MUTED}: {told.fact}")
        self.standing = None
        self.clock.stale = True
        warnings.warn(f"tenterhook muted a hook at one target. {told}", RuntimeWarning, stacklevel=2)

    def unmute(self) -> None:
        self.muted = False
        self.standing = None
        for site in self.sites:
            if site.dormant and site.dormant.startswith(MUTED):
                site.wake()
