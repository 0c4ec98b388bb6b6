"""One rank's part of a tensor: the part itself, and which ranks' parts make the whole."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.errors import RefusedError
from tenterhook.resolve.targets import is_sharded

#: points whose value is the same on all ranks, or a part of the same whole; at others it is this rank's
GLOBAL = ("grad_final", "update")


def local(tensor: Tensor) -> Tensor:
    """The part that is on this rank; what is written into it is written into the tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def counts(tensor: Tensor, first: int = 0) -> bool:
    """Whether this rank's part is to be added when parts are merged over all ranks: of replicas, one is.

    `first` is the lowest rank that has the tensor at all.
    """
    if not is_sharded(tensor):
        return ranks.rank() == first
    return _counts(tensor.device_mesh, tensor.placements, first)  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def _counts(mesh: Any, placements: tuple[Any, ...], first: int) -> bool:
    if any(p.is_partial() for p in placements):
        raise RefusedError("the ranks hold summands of this gradient", remedy="use grad_final, where they are summed")
    place = mesh.get_coordinate()
    if place is None or first not in mesh.mesh:
        return False
    replicas = (p.is_replicate() for p in placements)
    return all(not copied or at == 0 for at, copied in zip(place, replicas, strict=True))


def summed(tensor: Tensor) -> Tensor:
    """Of a gradient whose ranks hold summands, the sum; another as it is. Every rank of its mesh calls it."""
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Replicate

    placements = tensor.placements  # type: ignore[attr-defined]
    if not any(p.is_partial() for p in placements):
        return tensor
    whole = [Replicate() if p.is_partial() else p for p in placements]
    return tensor.redistribute(placements=whole)  # type: ignore[attr-defined,no-any-return]


def fully_sharded(model: nn.Module) -> bool:
    """FSDP2: parameters are put together for a forward and a backward, and are parts at other times."""
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())


def tensor_parallel(model: nn.Module) -> bool:
    """Modules compute with parts of their parameters, so that what they are given and return may be parts, too."""
    own = 1 if fully_sharded(model) else 0
    return any(
        sum(not p.is_replicate() for p in parameter.placements) > own  # type: ignore[attr-defined]
        for parameter in model.parameters()
        if is_sharded(parameter)
    )


def flattened(model: nn.Module) -> bool:
    """FSDP1: what stands in place of parameters are parts of a flat tensor, which nothing tells from whole ones."""
    return any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
