"""Change the gradients of many sites with a few operations, whose number does not depend on the number of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tenterhook.resolve.sharding import local
from tenterhook.rig.points.calling import SAMPLED
from tenterhook.rig.runtime.attached_hook import AttachedHook, Site


def measure_together(hook: AttachedHook, parts: Sequence[Tensor]) -> dict[str, Tensor] | None:
    """Return the partial results of a two-phase modifier, with one row for each tensor, or None if it cannot do it."""
    together = hook.definition.together
    if together is None or together.measure is None or not _fit(parts):
        return None
    return together.measure(list(parts))


def change_together(
    hook: AttachedHook, sites: Sequence[Site], parts: Sequence[Tensor], merged: Mapping[str, Tensor]
) -> bool:
    """Change all gradients in place, and count the firings. Return False if they must be changed one by one.

    Args:
        hook: The hook, which is active and in phase.
        sites: The sites.
        parts: For each site, this rank's part of the gradient.
        merged: The merged results of a two-phase modifier, with one row for each site, or one row for all.
    """
    together, needs_value = hook.definition.together, hook.definition.needs_value
    # In some steps, the size of each change is recorded. It is measured when the sites are changed one by one.
    sampled = hook.clock.step % SAMPLED == 1 and any(map(hook.samples, parts))
    if together is None or sampled or not _fit(parts) or not _are_apart(parts):
        return False
    values = [local(one) for site in sites if (one := site.target.parameter()) is not None] if needs_value else []
    if needs_value and [one.dtype for one in values] != [one.dtype for one in parts]:
        return False
    together.change(list(parts), merged, values, **hook.resolved.params)
    clock = hook.clock
    for site in sites:
        site.count(clock)
        site.changed += 1
    return True


def _fit(parts: Sequence[Tensor]) -> bool:
    """Return True if the tensors can be measured and changed by operations on lists of tensors."""
    if not parts:
        return False
    device = parts[0].device
    return all(
        one.layout is torch.strided and one.is_floating_point() and one.device == device and not one.requires_grad
        for one in parts
    )


def _are_apart(parts: Sequence[Tensor]) -> bool:
    """Return True if no element of the tensors has the same memory as another one, as far as it is easy to see."""
    return len({one.data_ptr() for one in parts if one.numel()}) == sum(1 for one in parts if one.numel()) and all(
        one.is_contiguous() or one.is_contiguous(memory_format=torch.channels_last) for one in parts
    )
