"""Run two-phase modifiers on tensors that are spread across ranks: measure, merge in one collective, then apply."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.ranks import RankGroup
from tenterhook.resolve.sharding import is_counted_here
from tenterhook.rig.points.calling import apply
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site
from tenterhook.rig.runtime.hook_state import identity
from tenterhook.rig.step.modify_together import change_together, fits_together, measure_together
from tenterhook.rig.step.step_targets import Given, Reached
from tenterhook.transfers import send_to_device


@dataclass(frozen=True, slots=True)
class _Waiting:
    hook: AttachedHook
    given: Given
    columns: dict[str, Tensor]
    #: True if all gradients are changed together
    together: bool


class MergeBatch:
    """A batch of modifiers whose measurements are merged across ranks together.

    Two modifiers with a common target cannot be in the same batch. The batches depend only on the plan and on the
    targets of all ranks, so every rank forms the same batches.
    """

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._waiting: list[_Waiting] = []
        self._names: set[str] = set()

    def finish_before(self, hook: AttachedHook) -> None:
        """Finish the batch if it contains one of the hook's targets."""
        if self._waiting and not self._names.isdisjoint(hook.names):
            self.finish()

    def add(self, hook: AttachedHook, reached: Reached) -> None:
        """Measure this rank's parts of the hook's targets. Sites without a gradient or a local part are skipped."""
        given = Given.of(hook, reached)
        columns = {n: identity(p, len(hook.sites), reached.device) for n, p in hook.definition.partials.items()}
        counted = [at for at, part in enumerate(given.parts) if part.numel() and _counts(hook, given, at)]
        together = fits_together(hook, given.parts)
        if together:
            slots = send_to_device([given.sites[at].slot for at in counted], reached.device)
            for name, rows in measure_together(hook, [given.parts[at] for at in counted]).items():
                columns[name][slots] = rows.to(columns[name])
        else:
            for at in counted:
                self._measure(hook, given.sites[at], given.parts[at], columns)
        if hook.resolved.over_hook:
            columns = {n: reduce_rows(column, hook.definition.partials[n].merge) for n, column in columns.items()}
        self._waiting.append(_Waiting(hook, given, columns, together))
        self._names.update(hook.names)

    @staticmethod
    def _measure(hook: AttachedHook, site: Site, part: Tensor, columns: dict[str, Tensor]) -> None:
        measure = hook.definition.measure
        assert measure is not None
        try:
            for name, value in measure(part).items():
                columns[name][site.slot] = value
        except Exception as error:
            hook.fail(site, error)

    def finish(self) -> None:
        """Merge the results across ranks, and apply the modifiers."""
        if not self._waiting:
            return
        waiting, self._waiting, self._names = self._waiting, [], set()
        how = [{n: p.merge for n, p in one.hook.definition.partials.items()} for one in waiting]
        for one, merged in zip(waiting, ranks.merge(self._group, [one.columns for one in waiting], how), strict=True):
            _apply(one.hook, one.given, merged, together=one.together)


def _apply(hook: AttachedHook, given: Given, merged: dict[str, Tensor], *, together: bool) -> None:
    if not given.sites:  # the ranks merge, even if none of them has a gradient in this step
        return
    over, device = hook.resolved.over_hook, given.parts[0].device
    slots = send_to_device([0] if over else [site.slot for site in given.sites], device)
    rows = {n: m.to(device)[slots] for n, m in merged.items()}
    if together:
        change_together(hook, given.sites, given.parts, rows)
        return
    for at, (site, _, part) in enumerate(given.each()):
        out = apply(site, part, {n: m[0 if over else at].to(part.device) for n, m in rows.items()})
        if out is not None:
            part.copy_(out)


def _counts(hook: AttachedHook, given: Given, at: int) -> bool:
    grad = given.parameters[at].grad
    return grad is not None and is_counted_here(grad, hook.resolved.counted_rank(given.sites[at].name))


def reduce_rows(column: Tensor, how: str) -> Tensor:
    """Reduce all rows to one row. Norms are reduced exactly as in `torch.nn.utils.clip_grad_norm_`, bit for bit."""
    if how == "sum":
        return column.sum(0, keepdim=True)
    return column.amax(0, keepdim=True) if how == "max" else torch.linalg.vector_norm(column, dim=0, keepdim=True)
