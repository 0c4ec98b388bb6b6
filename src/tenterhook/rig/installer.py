"""The rigging: live hooks and their fixtures, kept in line with the model and with which hooks are due."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook.errors import ResolveError
from tenterhook.record import Recorder
from tenterhook.resolve.model_view import Ground, optimizer_of
from tenterhook.resolve.resolution import ELSEWHERE, FROZEN, NEVER_CALLED, Claim, find_targets, why_dormant
from tenterhook.resolve.targets import Target
from tenterhook.rig.compiled.graph_cache import Graphs, count, drop, in_graphs, unwatch, watch
from tenterhook.rig.points.parameter_grads import ParameterFixture
from tenterhook.rig.points.registry import make_fixture
from tenterhook.rig.points.taps import Taps
from tenterhook.rig.runtime.attached_hook import GONE, MUTED, LiveHook, Site
from tenterhook.rig.runtime.registration import Fixture, Touched
from tenterhook.rig.runtime.step_clock import Clock

#: reasons to sleep that do not pass by themselves
STAYS = (NEVER_CALLED, GONE, ELSEWHERE)


ABANDONED = "the gradients were cleared without a step"


class Rigging:
    def __init__(
        self, model: nn.Module, optimizers: Mapping[str, Optimizer], recorder: Recorder, ground: Ground, number: int
    ) -> None:
        self.clock = Clock()
        self.lives: dict[str, LiveHook] = {}
        self.fixtures: dict[tuple[str, str, str], Fixture] = {}
        #: those whose registration has come or gone, until the compiled graphs know
        self.touched: Touched = []
        #: graphs that changes have made void
        self.dropped = 0
        #: code that is compiled looks for its hooks
        self.watched = False
        #: how often parts of the model were found to be others
        self.resolved = 0
        self.model = weakref.ref(model)
        self._optimizers = {name: weakref.ref(o) for name, o in optimizers.items()}
        self._recorder = recorder
        self._names = ground.names
        self._number = number
        self._gathered = ground.fully_sharded
        #: optimizers that were told to be gone
        self._gone: set[str] = set()
        #: hooks taken off while a graph may still recompute with them
        self.retired: list[LiveHook] = []
        #: a change waits for the next forward of the root
        self._waiting = False
        #: a pipeline tries its stage with empty tensors, which is no forward of the training
        self.blind = False
        #: what the hot paths look at, as `arm` left it
        self.active: tuple[LiveHook, ...] = ()
        self.modifiers: frozenset[LiveHook] = frozenset()
        self.next_change: int | None = None
        self._held = False
        self._bound: list[ParameterFixture] = []
        self._tied: list[Target] = []

    def optimizers(self) -> dict[str, Optimizer]:
        return {name: o for name, ref in self._optimizers.items() if (o := ref()) is not None}

    # -- putting up and taking down ----------------------------------------------------------------------------------

    def put(self, claim: Claim, before: LiveHook | None = None) -> None:
        """Make a claim live. Of `before`, a hook of the same id, it takes over the state if the action is the same."""
        live = LiveHook(claim, self.clock, self._recorder)
        live.training = self.training
        if live.partials is not None and claim.hook.point.side == "backward" and self._optimizers:
            live.at_backward_end = self._backward_ended
        if before is not None and before.definition.fingerprint == live.definition.fingerprint:
            live.inherit(before)
        self.lives[claim.hook.id] = live
        live.make_gauge()
        if live.has_fixtures:
            live.fixtures = [self._fixture(site) for site in live.sites]

    def _fixture(self, site: Site) -> Fixture:
        target = site.target
        key = (target.kind, target.name, site.point)
        fixture = self.fixtures.get(key)
        if fixture is None:
            fixture = self.fixtures[key] = make_fixture(
                target, site.point, self.clock, self._number, self.touched, gathered=self._gathered
            )
            fixture.stays = self._names.in_graph(target)
        fixture.sites.append(site)
        return fixture

    def order(self) -> None:
        """Sites of one fixture fire in plan order."""
        order = {live: i for i, live in enumerate(self.lives.values())}
        for fixture in self.fixtures.values():
            fixture.sites.sort(key=lambda s: order.get(s.live, -1))

    def retire(self, live: LiveHook) -> None:
        """Take a hook off; what a living graph may recompute with stays up, inactive, until that graph is gone."""
        if live.modifies_forward and self.clock.in_forward:
            self.retired.append(live)  # the forward under way ends as it began
            return
        live.active = False
        live.muted = True
        replayable = self.clock.replayable()
        if live in replayable:
            self.retired.append(live)
            for fixture in live.fixtures:
                fixture.refresh(replayable)
        else:
            self._discard(live)

    def _discard(self, live: LiveHook) -> None:
        replayable = self.clock.replayable()
        for fixture in live.fixtures:
            fixture.sites = [s for s in fixture.sites if s.live is not live]
            fixture.refresh(replayable)
            if not fixture.sites and not fixture.stays:
                fixture.leave()
                self.fixtures.pop((fixture.target.kind, fixture.target.name, fixture.point), None)
        live.fixtures = []

    def arm(self) -> None:
        """Bring everything that is registered in line with which hooks are due in this step."""
        step, replayable = self.clock.step, self.clock.replayable()
        self._waiting = False
        for live in self.lives.values():
            wanted = (live.due(step) and not self.blind, live in replayable)
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

    def watch_graphs(self) -> None:
        """See to it that compiled code misses none of its hooks, as soon as there can be any."""
        self.watched = watch(self)
        if self.watched:
            self.touched += [(f, m) for f in self.fixtures.values() if isinstance(m := f.target.owner(), nn.Module)]
            self.tell_graphs()

    def graphs(self) -> Graphs:
        modules = (f.target.owner() for f in self.fixtures.values() if f.target.kind == "module")
        return Graphs(self.dropped, count(m for m in modules if isinstance(m, nn.Module)))

    def tell_graphs(self) -> None:
        """Compiled code that was made with other hooks than there are now is compiled again at its next call. A hook
        that it knows stays up from then on, whether it is due or not."""
        if not self.touched:
            return
        touched, self.touched[:] = list(self.touched), []
        self.dropped += drop(module for _, module in touched)
        for standing, module in touched if self.dropped else ():
            standing.stays = standing.stays or in_graphs(module)

    def _sum_up(self) -> None:
        lives = self.lives.values()
        self.active = tuple(live for live in lives if live.active)
        self.modifiers = frozenset(live for live in self.active if live.modifies_forward)
        self._held = any(live.standing is not None and live.standing[1] for live in lives)
        self._bound = [f for f in self.fixtures.values() if isinstance(f, ParameterFixture) and f.wanted]
        self._tied = [s.target for live in self.active for s in live.sites if s.target.twins]
        changes = (live.hook.when.next_change(self.clock.step) for live in lives if not live.muted)
        self.next_change = min((c for c in changes if c is not None), default=None)

    def take_down(self, taps: Taps) -> None:
        """Leave the model. What a living checkpoint would recompute with stays, inactive, until its graph is gone."""
        for live in (*self.lives.values(), *self.retired):
            live.active = False
            for site in live.sites:
                site.installed = False
        self.clock.forget()
        replayable = self.clock.replayable()
        lingering = [f for f in self.fixtures.values() if any(s.live in replayable for s in f.sites)]
        for fixture in self.fixtures.values():
            if fixture in lingering:
                fixture.refresh(replayable)
            else:
                fixture.leave()
        taps.serve(list(replayable))
        for forward in self.clock.recomputing():
            weakref.finalize(forward, _let_go, self.clock, lingering, taps)
        self.tell_graphs()
        unwatch(self)
        self.fixtures.clear()
        self._bound = []
        self.active = ()

    # -- at the root's forward ---------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> bool:
        """Whether a change waited for this forward."""
        return self._waiting or self._held or self.clock.stale or bool(self.retired)

    def settle(self) -> None:
        """Follow what has happened to the model since the last forward."""
        self.clock.looks = False
        for name, ref in self._optimizers.items():
            if ref() is None and name not in self._gone:
                self._gone.add(name)
                warnings.warn(
                    f"tenterhook: the {name!r} given to attach no longer exists, so its steps are not seen\n"
                    "  remedy: attach again with the optimizer that is used now",
                    RuntimeWarning,
                    stacklevel=2,
                )
        if self.active:
            self._abandon()
            if not self._names.intact() or not all(target.tied for target in self._tied):
                self.resolve_again()
            for fixture in self._bound:
                self._follow(fixture)
        self._wake()
        if self.retired:
            needed = self.clock.replayable()
            for live in self.retired:  # some were taken off inside the forward before
                live.active, live.muted = False, True
                for standing in live.fixtures:
                    standing.refresh(needed)
            for live in [r for r in self.retired if r not in needed]:
                self.retired.remove(live)
                self._discard(live)
        self.clock.begin_pass(self.modifiers, training=self.training())

    def _abandon(self) -> None:
        """A backward whose gradients were cleared without a step (GradScaler skipped it) leaves no statistics."""
        started = [(live, live.partials) for live in self.active
                   if live.partials and live.hook.point.side == "backward" and 1 in live.partials.fired]  # fmt: skip
        if not started or not self.clock.accumulated or self._any_gradient():
            return
        self.clock.accumulated = False
        for live, partials in started:
            for site in live.sites:
                if partials.fired[site.slot]:
                    site.skip(ABANDONED)
            partials.clear()

    def _any_gradient(self) -> bool:
        groups = [group for o in self.optimizers().values() for group in o.param_groups]
        return any(p.grad is not None for group in groups for p in group["params"])

    def _backward_ended(self) -> None:
        self.clock.looks = False
        self.clock.accumulated = self.clock.accumulated or self._any_gradient()

    def _follow(self, fixture: ParameterFixture) -> None:
        """The tensor at the name may have been replaced, swapped, frozen, or taken by a parametrization."""
        parameter = fixture.target.parameter()
        if parameter is None:
            self.resolve_again()
        elif not isinstance(parameter, nn.Parameter) or not parameter.is_leaf:
            pass  # functional_call lends the module other tensors for one forward
        elif parameter.requires_grad:
            fixture.rebind(parameter)
        else:
            for site in fixture.sites:
                site.sleep(FROZEN)
            fixture.refresh()

    def resolve_again(self) -> None:
        """Parts of the model were replaced, untied or parametrized: find every target by its name once more."""
        model = self.model()
        if model is None:
            return
        self.resolved += 1
        ground = Ground(model, self.optimizers())
        self._names = ground.names
        for live in self.lives.values():
            if live.hook.point.on == ("tap",):
                continue
            try:
                targets = {t.name: t for t in find_targets(live.hook, ground, strict=False)}
            except ResolveError:
                targets = {}
            for site in live.sites:
                self._move(site, targets.pop(site.name, None))
            for target in targets.values():
                site = live.add_site(target)
                if live.has_fixtures:
                    live.fixtures.append(self._fixture(site))
            for site in live.sites:
                why = why_dormant(live.hook, site.target, ground.optimized) if site.dormant is None else None
                if why:
                    site.sleep(why)
            live.standing = None
        self.arm()

    def _move(self, site: Site, target: Target | None) -> None:
        if target is None:
            if site.dormant != ELSEWHERE:
                site.sleep(GONE)
            return
        if site.dormant == GONE:
            site.wake()
        moved = target.owner() is not site.target.owner() or target.key != site.target.key
        site.target = target
        fixture = site.live.fixtures[site.slot] if site.live.fixtures else None
        if fixture is not None and (moved or fixture.target is not target):
            if fixture.target.owner() is not target.owner() or fixture.target.key != target.key:
                fixture.leave()
            fixture.target = target
        if moved:
            site.rebound += 1

    def _wake(self) -> None:
        """Dormant sites whose reason has passed: unfrozen, or taken up by an optimizer."""
        optimized: dict[int, str] | None = None
        woken = False
        for live in self.lives.values():
            for site in live.sites if live.sleeps else ():
                if site.dormant is None or site.dormant in STAYS or site.dormant.startswith(MUTED):
                    continue
                parameter = site.target.parameter()
                if parameter is None or not parameter.requires_grad:
                    continue
                optimized = optimized if optimized is not None else optimizer_of(self.optimizers())
                why = why_dormant(live.hook, site.target, optimized)
                if why is not None:
                    site.dormant = why
                    continue
                woken = True
                site.wake()
                site.installed = live.active
                if live.fixtures:
                    live.fixtures[site.slot].refresh(self.clock.replayable())
        if woken:
            self._sum_up()

    @torch.no_grad()
    def gather_state(self) -> None:
        """Of targets that not every rank has, the declared state from the first that has each. Every rank calls it."""
        lives = [live for live in self.lives.values() if live.claim.owners and live.definition.state]
        mine = ranks.rank()
        given = []
        for live in lives:
            held = torch.tensor([live.claim.first(site.name) == mine for site in live.sites])
            packed = live.state.pack(torch.device("cpu"))
            given.append({name: torch.where(held.to(t.device), t, 0.0) for name, t in packed.items()})
        for live, whole in zip(lives, ranks.merge(given, [dict.fromkeys(one, "sum") for one in given]), strict=True):
            live.state.packed.update(whole)

    def training(self) -> bool:
        model = self.model()
        return model is None or model.training


def _let_go(clock: Clock, lingering: list[Fixture], taps: Taps) -> None:
    if not clock.recomputing():
        taps.serve([])
        for fixture in lingering:
            fixture.leave()
