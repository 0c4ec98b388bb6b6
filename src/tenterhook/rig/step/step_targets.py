"""Find the sites to which an optimizer's step applies. Parameters are looked up by name in each step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from typing import NamedTuple, cast

import torch
from torch import Tensor

from tenterhook.resolve.dormancy import FROZEN, NO_OPTIMIZER
from tenterhook.resolve.model_view import optimizer_of
from tenterhook.resolve.targets import is_sharded
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.environment import TrainedModel


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


class _Decision(NamedTuple):
    """A cached decision about which sites the step applies to, with the ids of the parameters at that time.

    Only the ids of parameters are stored, to avoid keeping the parameters alive. The optimizer keeps its own parameters
    alive.
    """

    awake: list[Site]
    ids: list[int]
    mine: list[bool]
    sharded: bool


class StepTargets:
    """An object that finds the sites to which one optimizer's step applies."""

    def __init__(self, optimizer: str, model: TrainedModel, resolve_again: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._model = model
        self._resolve_again = resolve_again
        self._decisions: dict[AttachedHook, _Decision] = {}
        self._held: dict[int, str] = {}

    def clear(self) -> None:
        self._decisions, self._held = {}, {}

    def begin_step(self) -> None:
        """Find the optimizer of each parameter, and clear the cache if a parameter's optimizer has changed."""
        held = optimizer_of(self._model.optimizers())
        if held != self._held:
            self._decisions, self._held = {}, held

    def reached_by(self, hook: AttachedHook) -> Reached:
        """Return the sites of a hook to which this optimizer's step applies."""
        awake, parameters = self._awake(hook)
        decision = self._decisions.get(hook)
        if decision is not None and decision.awake == awake and decision.ids == list(map(id, parameters)):
            there = cast(list[Tensor], parameters)  # the id of None is never stored, so no parameter is None
            if all(p.requires_grad for p in there):
                mine = decision.mine
                return Reached(list(compress(awake, mine)), list(compress(there, mine)), decision.sharded)
        if any(parameter is None for parameter in parameters):
            self._resolve_again()
            awake, parameters = self._awake(hook)
        return self._decide(hook, awake, parameters)

    @staticmethod
    def _awake(hook: AttachedHook) -> tuple[list[Site], list[Tensor | None]]:
        awake = [site for site in hook.sites if site.dormant is None]
        return awake, [site.target.parameter() for site in awake]

    def _decide(self, hook: AttachedHook, awake: list[Site], parameters: list[Tensor | None]) -> Reached:
        mine = [False] * len(awake)
        for number, (site, parameter) in enumerate(zip(awake, parameters, strict=True)):
            if parameter is None:
                continue
            frozen = not parameter.requires_grad and parameter.grad is None
            if frozen or id(parameter) not in self._held:
                site.sleep(FROZEN if frozen else NO_OPTIMIZER)
                site.installed = False
                continue
            if site.bound != id(parameter):
                site.rebound += site.bound is not None
                site.bound = id(parameter)
            mine[number] = self._held[id(parameter)] == self._optimizer
        found = [p for p in compress(parameters, mine) if p is not None]
        sharded = any(map(is_sharded, found))
        self._decisions[hook] = _Decision(awake, list(map(id, parameters)), mine, sharded)
        return Reached(list(compress(awake, mine)), found, sharded)
