"""Change the gradients of many sites with a few operations, whose number does not depend on the number of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tenterhook.resolve.sharding import local
from tenterhook.rig.points.calling import SAMPLED
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site


def fits_together(hook: AttachedHook, parts: Sequence[Tensor]) -> bool:
    """Return True if a modifier can measure and change these gradients together, in place.

    In some steps, the size of each change is recorded. It is measured when the gradients are changed one by one.
    """
    if hook.definition.together is None or not parts:
        return False
    sampled = hook.clock.step % SAMPLED == 1 and any(map(hook.samples, parts))
    return not sampled and _are_plain(parts)


def measure_together(hook: AttachedHook, parts: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the partial results of a two-phase modifier, with one row for each tensor, and {} for other modifiers."""
    together = hook.definition.together
    return {} if together is None or together.measure is None or not parts else together.measure(list(parts))


def change_together(
    hook: AttachedHook, sites: Sequence[Site], parts: Sequence[Tensor], merged: Mapping[str, Tensor]
) -> None:
    """Change all gradients in place, and count the firings.

    Args:
        hook: The hook, which is active and in phase.
        sites: The sites.
        parts: For each site, this rank's part of the gradient.
        merged: The merged results of a two-phase modifier, with one row for each site, or one row for all.
    """
    together, clock = hook.definition.together, hook.clock
    assert together is not None
    parameters = [site.target.parameter() for site in sites] if hook.definition.needs_value else []
    values = [local(one) for one in parameters if one is not None]
    try:
        together.change(list(parts), merged, values, **hook.resolved.params)
    except Exception as error:
        hook.fail(sites[0], error)
        return
    for site in sites:
        site.count(clock)
        site.changed += 1


def _are_plain(parts: Sequence[Tensor]) -> bool:
    """Return True if operations on lists of tensors can change these tensors in place.

    No element may have the same memory as another one. This is checked as far as it is cheap.
    """
    kinds = {(one.layout, one.dtype, one.device, one.requires_grad) for one in parts}
    if {(layout, requires_grad) for layout, _, _, requires_grad in kinds} != {(torch.strided, False)}:
        return False
    dtypes = {dtype for _, dtype, _, _ in kinds}
    # The norms of double precision and of other tensors would be rounded differently in one list.
    if not all(one.is_floating_point for one in dtypes) or (torch.float64 in dtypes and len(dtypes) > 1):
        return False
    if len({device for _, _, device, _ in kinds}) > 1 or not all(map(_is_dense, parts)):
        return False
    # Tensors without elements have no memory of their own.
    places = [one.data_ptr() for one in parts if one.numel()]
    return len(set(places)) == len(places)


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
