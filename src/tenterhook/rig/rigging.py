"""The rigging: live hooks and their fixtures, kept in line with the model and with which hooks are due."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from torch import nn
from torch.optim import Optimizer

from tenterhook.record import Recorder
from tenterhook.rig.clock import Clock
from tenterhook.rig.install import Fixture, ParameterFixture, make_fixture
from tenterhook.rig.ledger import Site
from tenterhook.rig.live import LiveHook
from tenterhook.rig.names import Target, names_of
from tenterhook.rig.resolve import FROZEN, NEVER_CALLED, Claim, optimizer_of, why_dormant

ABANDONED = "the gradients were cleared without a step"
GONE = "gone from the model"

#: a fixture, and the one of the same target that must be registered before it
_FRONT = {"grad_input": "input", "grad_output": "output"}
_BACK = {front: back for back, front in _FRONT.items()}


class Rigging:
    def __init__(self, model: nn.Module, optimizers: Mapping[str, Optimizer], recorder: Recorder) -> None:
        self.clock = Clock()
        self.lives: dict[str, LiveHook] = {}
        self.fixtures: dict[tuple[str, str, str], Fixture] = {}
        self.model = weakref.ref(model)
        self._optimizers = {name: weakref.ref(o) for name, o in optimizers.items()}
        self._recorder = recorder
        self._bound: list[ParameterFixture] = []
        #: hooks taken off while a graph may still recompute with them
        self._retired: list[LiveHook] = []
        #: a change waits for the next forward of the root
        self._waiting = False
        #: what the hot paths look at, as `arm` left it
        self.active: tuple[LiveHook, ...] = ()
        self.next_change: int | None = None
        self._modifiers: frozenset[LiveHook] = frozenset()
        self._held = False
        self._up: list[ParameterFixture] = []

    def optimizers(self) -> dict[str, Optimizer]:
        return {name: o for name, ref in self._optimizers.items() if (o := ref()) is not None}

    # -- putting up and taking down ----------------------------------------------------------------------------------

    def put(self, claim: Claim, before: LiveHook | None = None) -> None:
        """Make a claim live. Of `before`, a hook of the same id, it takes over the state if the action is the same."""
        live = LiveHook(claim, self.clock, self._recorder)
        live.training = self._training
        if before is not None and before.definition.fingerprint == live.definition.fingerprint:
            slots = {s.name: s.slot for s in live.sites}
            live.state.carry(before.state, {s.slot: slots[s.name] for s in before.sites if s.name in slots})
        self.lives[claim.hook.id] = live
        if claim.hook.point.side == "step" or claim.hook.point.on == ("tap",):
            return
        live.fixtures = [self._fixture(site.target, claim.hook.at, site) for site in live.sites]

    def _fixture(self, target: Target, point: str, site: Site) -> Fixture:
        key = (target.kind, target.name, point)
        fixture = self.fixtures.get(key)
        if fixture is None:
            fixture = self.fixtures[key] = make_fixture(target, point, self.clock)
            if isinstance(fixture, ParameterFixture):
                self._bound.append(fixture)
            front = self.fixtures.get((target.kind, target.name, _FRONT.get(point, "")))
            if front is not None:
                front.behind = fixture
            fixture.behind = self.fixtures.get((target.kind, target.name, _BACK.get(point, "")))
        fixture.sites.append(site)
        return fixture

    def order(self) -> None:
        """Sites of one fixture fire in plan order."""
        order = {live: i for i, live in enumerate(self.lives.values())}
        for fixture in self.fixtures.values():
            fixture.sites.sort(key=lambda s: order.get(s.live, -1))

    def retire(self, live: LiveHook) -> None:
        """Take a hook off; what a living graph may recompute with stays up, inactive, until that graph is gone."""
        live.active = False
        live.muted = True
        replayable = self.clock.replayable()
        if live in replayable:
            self._retired.append(live)
            for fixture in live.fixtures:
                fixture.refresh(replayable)
        else:
            self._discard(live)

    def _discard(self, live: LiveHook) -> None:
        replayable = self.clock.replayable()
        gone = set()
        for fixture in live.fixtures:
            fixture.sites = [s for s in fixture.sites if s.live is not live]
            fixture.refresh(replayable)
            if not fixture.sites:
                fixture.leave()
                del self.fixtures[fixture.target.kind, fixture.target.name, fixture.point]
                gone.add(fixture)
        live.fixtures = []
        if gone:
            self._bound = [f for f in self._bound if f not in gone]

    def arm(self) -> None:
        """Bring everything that is registered in line with which hooks are due in this step."""
        step, replayable = self.clock.step, self.clock.replayable()
        self._waiting = False
        for live in self.lives.values():
            wanted = (live.due(step), live in replayable)
            if wanted == live.standing:
                continue
            if live.modifies_forward and live.active != wanted[0] and self.clock.in_forward:
                self._waiting = True
                continue
            live.active, live.standing = wanted[0], wanted
            for fixture in live.fixtures:
                fixture.refresh(replayable)
            if live.hook.point.side == "step":
                for site in live.sites:
                    site.installed = live.active and site.dormant is None
        self.clock.stale = False
        self._sum_up()

    def _sum_up(self) -> None:
        lives = self.lives.values()
        self.active = tuple(live for live in lives if live.active)
        self._modifiers = frozenset(live for live in self.active if live.modifies_forward)
        self._held = any(live.standing is not None and live.standing[1] for live in lives)
        self._up = [f for f in self._bound if f.handle is not None]
        changes = (live.hook.when.next_change(self.clock.step) for live in lives if not live.muted)
        self.next_change = min((c for c in changes if c is not None), default=None)

    def take_down(self) -> None:
        for live in (*self.lives.values(), *self._retired):
            live.active = False
            live.fixtures = []
            for site in live.sites:
                site.installed = False
        for fixture in self.fixtures.values():
            fixture.leave()
        self.fixtures.clear()
        self._bound.clear()
        self._up.clear()
        self._retired.clear()

    # -- at the root's forward ---------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Take up what has changed since the last forward. Whether this one's end matters to a recomputation."""
        self.clock.in_forward, self.clock.replayed = False, None
        if self._waiting or self._held or self.clock.stale:
            self.arm()
        if self.active:
            self._abandon()
        for fixture in self._up:
            if fixture.handle is not None:
                self._follow(fixture)
        self._wake()
        if self._retired:
            needed = self.clock.replayable()
            for live in [r for r in self._retired if r not in needed]:
                self._retired.remove(live)
                self._discard(live)
        modifiers = self._modifiers
        if modifiers or self.clock.now.modifiers or not self._optimizers:
            self.clock.begin_pass(modifiers)
        return bool(modifiers) or bool(self._retired) or self._held

    def _abandon(self) -> None:
        """A backward whose gradients were cleared without a step (GradScaler skipped it) leaves no statistics."""
        started = [(live, live.partials) for live in self.active
                   if live.partials and live.hook.point.side == "backward" and any(live.partials.fired)]  # fmt: skip
        if not started or not self._optimizers:
            return
        groups = [group for o in self.optimizers().values() for group in o.param_groups]
        if any(p.grad is not None for group in groups for p in group["params"]):
            return
        for live, partials in started:
            for site in live.sites:
                if partials.fired[site.slot]:
                    site.skip(ABANDONED)
            partials.clear()

    def _follow(self, fixture: ParameterFixture) -> None:
        """The tensor at the name may have been replaced, swapped, frozen, or taken by a parametrization."""
        parameter = fixture.target.parameter()
        if parameter is None:
            self._relocate(fixture)
        elif parameter.requires_grad:
            fixture.rebind()
        else:
            for site in fixture.sites:
                site.sleep(FROZEN)
            fixture.refresh()

    def _relocate(self, fixture: ParameterFixture) -> None:
        model = self.model()
        target = names_of(model, {}).parameters.get(fixture.target.name) if model is not None else None
        if target is None:
            for site in fixture.sites:
                site.sleep(GONE)
            fixture.refresh()
            return
        fixture.target = target
        for site in fixture.sites:
            site.target = target
        fixture.rebind()

    def _wake(self) -> None:
        """Dormant sites whose reason has passed: unfrozen, or taken up by an optimizer."""
        optimized: dict[int, str] | None = None
        woken = False
        for live in self.lives.values():
            for site in live.sites if live.sleeps else ():
                if site.dormant is None or site.dormant == NEVER_CALLED:
                    continue
                parameter = site.target.parameter()
                if parameter is None or not parameter.requires_grad:
                    continue
                optimized = optimized if optimized is not None else optimizer_of(self.optimizers())
                why = why_dormant(live.hook, site.target, optimized)
                if why is None:
                    site.wake()
                    woken = True
                    if live.fixtures:
                        live.fixtures[site.slot].refresh(self.clock.replayable())
                else:
                    site.dormant = why
        if woken:
            self._sum_up()

    def _training(self) -> bool:
        model = self.model()
        return model is None or model.training
