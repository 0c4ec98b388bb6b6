"""Two-phase modifiers of tensors that are spread over ranks: measured here, merged once for many, then applied."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.resolve.sharding import counts, local
from tenterhook.rig.points.calling import apply, out_of_phase
from tenterhook.rig.runtime.attached_hook import LiveHook, Site
from tenterhook.rig.runtime.hook_state import identity
from tenterhook.rig.step.step_targets import Reached

NO_GRADIENT = "no gradient at the optimizer's step"


@dataclass(frozen=True, slots=True)
class _Waiting:
    live: LiveHook
    given: list[tuple[Site, Tensor]]
    columns: dict[str, Tensor]


class Stage:
    """Modifiers that wait for one merge. One whose targets another of them has must wait for the next stage.

    Which wait together depends on the plan and on the targets of all ranks, so it is the same everywhere.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._names: set[str] = set()

    def make_way(self, live: LiveHook) -> None:
        """Carry out what the hook's targets wait for."""
        if self._waiting and not self._names.isdisjoint(live.names):
            self.carry_out()

    def add(self, live: LiveHook, reached: Reached) -> None:
        """Measure its parts here. A site that is not here, or has no gradient, adds nothing to the merge."""
        measure, wanted, given = live.measure, live.in_phase(), []
        assert measure is not None
        columns = {n: identity(p, len(live.sites), reached.device) for n, p in live.definition.partials.items()}
        for site, parameter in zip(reached.sites, reached.parameters, strict=True):
            if not wanted:
                site.skip(out_of_phase(live))
                continue
            if parameter.grad is None:
                site.skip(NO_GRADIENT)
                continue
            given.append((site, parameter.grad))
            part = local(parameter.grad)
            if not part.numel() or not counts(parameter.grad, live.claim.first(site.name)):
                continue
            try:
                for name, value in measure(part).items():
                    columns[name][site.slot] = value
            except Exception as error:
                live.failed(site, error)
        if live.claim.over_hook:
            columns = {n: over(column, live.definition.partials[n].merge) for n, column in columns.items()}
        self._waiting.append(_Waiting(live, given, columns))
        self._names.update(live.names)

    def carry_out(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._names = self._waiting, [], set()
        how = [{n: p.merge for n, p in one.live.definition.partials.items()} for one in waiting]
        for one, merged in zip(waiting, ranks.merge([one.columns for one in waiting], how), strict=True):
            for site, grad in one.given:
                part = local(grad)
                row = 0 if one.live.claim.over_hook else site.slot
                out = apply(site, part, {n: m[row].to(part.device) for n, m in merged.items()})
                if out is not None:
                    part.copy_(out)


def over(column: Tensor, how: str) -> Tensor:
    """All rows as one. The norm of norms is taken as torch.nn.utils.clip_grad_norm_ takes it, to the bit."""
    if how == "sum":
        return column.sum(0, keepdim=True)
    return column.amax(0, keepdim=True) if how == "max" else torch.linalg.vector_norm(column, dim=0, keepdim=True)
