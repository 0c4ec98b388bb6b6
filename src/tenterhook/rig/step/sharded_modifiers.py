"""Run two-phase modifiers on tensors that are spread across ranks: measure, merge in one collective, then apply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.resolve.sharding import is_counted_here, local
from tenterhook.rig.points.calling import apply, out_of_phase
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.hook_state import identity
from tenterhook.rig.step.step_targets import Reached, skip_without_gradient


@dataclass(frozen=True, slots=True)
class _Waiting:
    hook: AttachedHook
    given: list[tuple[Site, Tensor]]
    columns: dict[str, Tensor]


class MergeBatch:
    """A batch of modifiers whose measurements are merged across ranks together.

    Two modifiers with a common target cannot be in the same batch. The batches depend only on the plan and on the
    targets of all ranks, so every rank forms the same batches.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._names: set[str] = set()

    def finish_before(self, hook: AttachedHook) -> None:
        """Finish the batch if it contains one of the hook's targets."""
        if self._waiting and not self._names.isdisjoint(hook.names):
            self.finish()

    def add(self, hook: AttachedHook, reached: Reached) -> None:
        """Measure this rank's parts of the hook's targets. Sites without a gradient or a local part are skipped."""
        measure, wanted, given = hook.definition.measure, hook.in_phase(), []
        assert measure is not None
        columns = {n: identity(p, len(hook.sites), reached.device) for n, p in hook.definition.partials.items()}
        for site, parameter in zip(reached.sites, reached.parameters, strict=True):
            if not wanted:
                site.skip(out_of_phase(hook))
                continue
            if parameter.grad is None:
                skip_without_gradient(site)
                continue
            given.append((site, parameter.grad))
            part = local(parameter.grad)
            if not part.numel() or not is_counted_here(parameter.grad, hook.resolved.first_rank(site.name)):
                continue
            try:
                for name, value in measure(part).items():
                    columns[name][site.slot] = value
            except Exception as error:
                hook.fail(site, error)
        if hook.resolved.over_hook:
            columns = {n: reduce_rows(column, hook.definition.partials[n].merge) for n, column in columns.items()}
        self._waiting.append(_Waiting(hook, given, columns))
        self._names.update(hook.names)

    def finish(self) -> None:
        """Merge the results across ranks, and apply the modifiers."""
        if not self._waiting:
            return
        waiting, self._waiting, self._names = self._waiting, [], set()
        how = [{n: p.merge for n, p in one.hook.definition.partials.items()} for one in waiting]
        for one, merged in zip(waiting, ranks.merge([one.columns for one in waiting], how), strict=True):
            for site, grad in one.given:
                part = local(grad)
                row = 0 if one.hook.resolved.over_hook else site.slot
                out = apply(site, part, {n: m[row].to(part.device) for n, m in merged.items()})
                if out is not None:
                    part.copy_(out)


def reduce_rows(column: Tensor, how: str) -> Tensor:
    """Reduce all rows to one row. Norms are reduced exactly as in `torch.nn.utils.clip_grad_norm_`, bit for bit."""
    if how == "sum":
        return column.sum(0, keepdim=True)
    return column.amax(0, keepdim=True) if how == "max" else torch.linalg.vector_norm(column, dim=0, keepdim=True)
