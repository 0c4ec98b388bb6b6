"""The only caller of collectives. On one process every function is the identity."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor


def rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def merge(partials: Mapping[str, Tensor], how: Mapping[str, str]) -> dict[str, Tensor]:
    """Partial results of shards, merged over all ranks. Every rank calls it, with the same names.

    One sum and one maximum, however many partial results there are: a norm goes as the sum of its squares.
    """
    if world_size() == 1:
        return dict(partials)
    merged: dict[str, Tensor] = {}
    for kind, op in (("sum", dist.ReduceOp.SUM), ("max", dist.ReduceOp.MAX)):
        names = [n for n in sorted(partials) if (how[n] == "max") == (kind == "max")]
        if not names:
            continue
        flat = torch.cat([(partials[n].square() if how[n] == "norm" else partials[n]).double().flatten()
                          for n in names])  # fmt: skip
        dist.all_reduce(flat, op=op)
        for name, part in zip(names, flat.split([partials[n].numel() for n in names]), strict=True):
            part = part.view_as(partials[name])
            merged[name] = part.sqrt() if how[name] == "norm" else part
    return merged
