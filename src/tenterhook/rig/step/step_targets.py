"""Find the sites to which an optimizer's step applies: those whose parameters the optimizer holds."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tenterhook.resolve.dormancy import FROZEN, PASSING
from tenterhook.resolve.fingerprint import same
from tenterhook.resolve.sharding import local
from tenterhook.resolve.targets import is_sharded
from tenterhook.rig.model_sync import ModelSync
from tenterhook.rig.points.calling import out_of_phase
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site

NO_GRADIENT = "no gradient at the optimizer's step"


class Reached(NamedTuple):
    """The sites that a step applies to, and their parameters, in slot order.

    They are stored in two lists, because creating one tuple for each site would trigger the garbage collector.
    """

    sites: list[Site]
    parameters: list[Tensor]
    sharded: bool

    @property
    def device(self) -> torch.device:
        return self.parameters[0].device if self.parameters else torch.device("cpu")


class Given(NamedTuple):
    """The sites of a hook whose parameters have a gradient, with this rank's parts of the gradients."""

    sites: list[Site]
    parameters: list[Tensor]
    parts: list[Tensor]

    @classmethod
    def of(cls, hook: AttachedHook, reached: Reached) -> Given:
        """Find the gradients, and count the sites that have none or are out of phase."""
        given, wanted = cls([], [], []), hook.in_phase()
        for site, parameter in zip(reached.sites, reached.parameters, strict=True):
            grad = parameter.grad
            if not wanted:
                site.skip(out_of_phase(hook))
            elif grad is None:
                skip_without_gradient(site)
            else:
                given.sites.append(site)
                given.parameters.append(parameter)
                given.parts.append(local(grad) if reached.sharded else grad)
        return given

    def each(self) -> Iterator[tuple[Site, Tensor, Tensor]]:
        """Yield each site with its parameter and its gradient."""
        return zip(self.sites, self.parameters, self.parts, strict=True)


class _Decision(NamedTuple):
    """The sites that a step applies to, while neither the model, the optimizer nor the hook's sites change."""

    version: tuple[int, ...]
    reached: Reached


class StepTargets:
    """An object that finds the sites to which one optimizer's step applies."""

    def __init__(self, optimizer: Optimizer, sync: ModelSync) -> None:
        self._sync = sync
        self._decisions: dict[AttachedHook, _Decision] = {}
        self._held = _parameters(optimizer)
        #: number of times that the optimizer's parameters have changed
        self._changes = 0
        # The parameters are held only as long as the optimizer holds them.
        self._optimizer = weakref.ref(optimizer, partial(_forget, self._decisions, self._held))

    def clear(self) -> None:
        self._decisions.clear()

    def begin_step(self) -> None:
        """Follow changes of the model and of the optimizer's parameters."""
        optimizer = self._optimizer()
        held = [] if optimizer is None else _parameters(optimizer)
        changed = not same(held, self._held)
        if changed:
            self._held[:] = held
            self._changes += 1
        self._sync.begin_step(optimizer_changed=changed)

    def reached_by(self, hook: AttachedHook) -> Reached:
        """Return the sites of a hook to which this optimizer's step applies."""
        version = self._sync.resolved, self._changes, len(hook.sites), hook.sleepers.blocks
        decision = self._decisions.get(hook)
        if decision is None or decision.version != version:
            before = decision.reached if decision is not None else None
            decision = self._decisions[hook] = _Decision(version, self._decide(hook, before))
        if hook.sleepers.count:
            _wake(decision.reached)
        return decision.reached

    def _decide(self, hook: AttachedHook, before: Reached | None) -> Reached:
        bound = dict(zip(before.sites, before.parameters, strict=True)) if before is not None else {}
        held = set(map(id, self._held))
        sites, parameters = [], []
        for site in hook.sites:
            parameter = site.target.parameter()
            if site.blocked or parameter is None or id(parameter) not in held:
                continue
            site.rebound += bound.get(site, parameter) is not parameter
            sites.append(site)
            parameters.append(parameter)
        return Reached(sites, parameters, any(map(is_sharded, parameters)))


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _forget(decisions: dict[AttachedHook, _Decision], held: list[Tensor], _: object) -> None:
    decisions.clear()
    held.clear()


def _wake(reached: Reached) -> None:
    """Enable the dormant sites whose parameters have a gradient, because the optimizer will use it."""
    for site, parameter in zip(reached.sites, reached.parameters, strict=True):
        if site.dormant in PASSING and (parameter.requires_grad or parameter.grad is not None):
            site.wake()
            site.installed = site.attached.active


def skip_without_gradient(site: Site) -> None:
    """Count a step in which a parameter has no gradient. If it is frozen, the site falls asleep."""
    parameter = site.target.parameter()
    if parameter is None or parameter.requires_grad:
        site.skip(NO_GRADIENT)
    elif site.dormant is None:
        site.sleep(FROZEN)
        site.installed = False
