"""Merge the partial results of all hooks over all ranks with two collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from tenterhook.ranks.group import RankGroup


def merge(
    group: RankGroup, partials: Sequence[Mapping[str, Tensor]], how: Sequence[Mapping[str, str]]
) -> list[dict[str, Tensor]]:
    """Merge the partial results of all hooks over the ranks of a group.

    One sum and one maximum over the ranks are enough for any number of hooks. A norm is merged as a sum of squares.
    Tensors on the CPU take part without waiting for a device that reduces its own tensors.
    """
    if group.is_alone:
        return [dict(one) for one in partials]
    merged: list[dict[str, Tensor]] = [{} for _ in partials]
    for takes_max, reduce in ((False, group.sum), (True, group.max)):
        keys = [(i, n) for i, one in enumerate(partials) for n in sorted(one) if (how[i][n] == "max") is takes_max]
        parts = [partials[i][n].square() if how[i][n] == "norm" else partials[i][n] for i, n in keys]
        for (i, n), part in zip(keys, _reduced(group, reduce, [part.double() for part in parts]), strict=True):
            merged[i][n] = part.sqrt() if how[i][n] == "norm" else part
    return merged


def _reduced(group: RankGroup, reduce: Callable[[Tensor], Tensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """Reduce tensors over the ranks, with one collective for each device on which they are reduced."""
    places: dict[torch.device, dict[torch.device, list[int]]] = {}
    for i, part in enumerate(parts):
        place = group.device_of_reduction(part.device)
        places.setdefault(place, {}).setdefault(part.device, []).append(i)
    found: dict[int, Tensor] = {}
    for place, by_device in places.items():
        joined = [torch.cat([parts[i].flatten() for i in some]) for some in by_device.values()]
        reduced = reduce(torch.cat([one.to(place) for one in joined]))
        for (device, some), one in zip(by_device.items(), reduced.split([len(j) for j in joined]), strict=True):
            numbers = one.to(device).split([parts[i].numel() for i in some])
            found.update((i, number.view_as(parts[i])) for i, number in zip(some, numbers, strict=True))
    return [found[i] for i in range(len(parts))]
