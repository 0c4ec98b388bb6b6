"""Merge the partial results of all hooks over all ranks with two collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tenterhook.ranks.group import RankGroup


def merge(
    group: RankGroup, partials: Sequence[Mapping[str, Tensor]], how: Sequence[Mapping[str, str]]
) -> list[dict[str, Tensor]]:
    """Merge the partial results of all hooks over the ranks of a group.

    One sum and one maximum over the ranks are enough for any number of hooks. A norm is merged as a sum of squares.
    """
    if group.is_alone:
        return [dict(one) for one in partials]
    merged: list[dict[str, Tensor]] = [{} for _ in partials]
    for takes_max, reduce in ((False, group.sum), (True, group.max)):
        keys = [(i, n) for i, one in enumerate(partials) for n in sorted(one) if (how[i][n] == "max") is takes_max]
        if not keys:
            continue
        parts = [partials[i][n].square() if how[i][n] == "norm" else partials[i][n] for i, n in keys]
        flat = reduce(torch.cat([part.double().flatten() for part in parts]))
        for (i, n), part in zip(keys, flat.split([part.numel() for part in parts]), strict=True):
            found = part.view_as(partials[i][n]).to(partials[i][n].device)
            merged[i][n] = found.sqrt() if how[i][n] == "norm" else found
    return merged
