"""Which of a hook's sites an optimizer's step reaches: looked up by name in each step, decided anew when one moved."""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

import torch
from torch import Tensor

from tenterhook.resolve.model_view import optimizer_of
from tenterhook.resolve.resolution import FROZEN, NO_OPTIMIZER
from tenterhook.resolve.targets import is_sharded
from tenterhook.rig.installer import Rigging
from tenterhook.rig.runtime.attached_hook import LiveHook, Site


class Reached(NamedTuple):
    """Sites with their parameters, in the order of slots. Two lists, for a tuple of each would wake the collector."""

    sites: list[Site]
    parameters: list[Tensor]
    sharded: bool

    @property
    def device(self) -> torch.device:
        return self.parameters[0].device if self.parameters else torch.device("cpu")


class _Kept(NamedTuple):
    """What was decided, and for which parameters. By id: nothing is kept alive, and an optimizer holds its own."""

    awake: list[Site]
    ids: list[int]
    mine: list[bool]
    sharded: bool


class Reach:
    """Of one optimizer's steps."""

    def __init__(self, optimizer: str, rigging: Rigging) -> None:
        self._optimizer = optimizer
        self._rigging = rigging
        self._kept: dict[LiveHook, _Kept] = {}
        self._held: dict[int, str] = {}

    def clear(self) -> None:
        self._kept, self._held = {}, {}

    def look(self) -> None:
        """Once in a step: which optimizer holds which parameter."""
        held = optimizer_of(self._rigging.optimizers())
        if held != self._held:
            self._kept, self._held = {}, held

    def of(self, live: LiveHook) -> Reached:
        awake = [site for site in live.sites if site.dormant is None]
        parameters = [site.target.parameter() for site in awake]
        kept = self._kept.get(live)
        if kept is not None and kept.awake == awake and kept.ids == list(map(id, parameters)):
            there: list[Tensor] = parameters  # type: ignore[assignment]  # an id that was kept is no None's
            if all(p.requires_grad for p in there):
                return Reached(list(compress(awake, kept.mine)), list(compress(there, kept.mine)), kept.sharded)
        if any(parameter is None for parameter in parameters):
            self._rigging.resolve_again()
            awake = [site for site in live.sites if site.dormant is None]
            parameters = [site.target.parameter() for site in awake]
        return self._decide(live, awake, parameters)

    def _decide(self, live: LiveHook, awake: list[Site], parameters: list[Tensor | None]) -> Reached:
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
        self._kept[live] = _Kept(awake, list(map(id, parameters)), mine, sharded)
        return Reached(list(compress(awake, mine)), found, sharded)
