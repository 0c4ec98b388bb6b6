"""One rank's part of a tensor: the part itself, and which ranks' parts make the whole."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.errors import RefusedError
from tenterhook.resolve.targets import is_sharded

#: points whose value is the same on all ranks, or a part of the same whole; at others it is this rank's
GLOBAL_POINTS = ("grad_final", "update")


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor; writing into it writes into the tensor."""
    if not is_sharded(tensor):
        return tensor
    sharded: Any = tensor
    part: Tensor = sharded.to_local()
    return part


def is_counted_here(tensor: Tensor, first: int = 0) -> bool:
    """True if this rank's part is added when parts are merged over all ranks: of replicas, one is.

    `first` is the lowest rank that has the tensor at all.
    """
    if not is_sharded(tensor):
        return ranks.rank() == first
    sharded: Any = tensor
    return _is_counted_here(sharded.device_mesh, sharded.placements, first)


@lru_cache(maxsize=256)
def _is_counted_here(mesh: Any, placements: tuple[Any, ...], first: int) -> bool:
    if any(p.is_partial() for p in placements):
        raise RefusedError("the ranks hold summands of this gradient", remedy="use grad_final, where they are summed")
    place = mesh.get_coordinate()
    if place is None or first not in mesh.mesh:
        return False
    replicas = (p.is_replicate() for p in placements)
    return all(not copied or at == 0 for at, copied in zip(place, replicas, strict=True))


def reduce_partial(tensor: Tensor) -> Tensor:
    """Sum a gradient of which ranks hold summands; return another as it is. Every rank of its mesh calls it."""
    if not is_sharded(tensor):
        return tensor
    from torch.distributed.tensor import Replicate

    sharded: Any = tensor
    if not any(p.is_partial() for p in sharded.placements):
        return tensor
    summed: Tensor = sharded.redistribute(placements=[Replicate() if p.is_partial() else p for p in sharded.placements])
    return summed


def is_fsdp2(model: nn.Module) -> bool:
    """True under FSDP2: parameters are gathered for a forward and a backward, and are shards at other times."""
    from torch.distributed.fsdp import FSDPModule

    return any(isinstance(module, FSDPModule) for module in model.modules())


def is_tensor_parallel(model: nn.Module) -> bool:
    """True if modules compute with shards of their parameters, so that their inputs and outputs may be shards, too."""
    own = 1 if is_fsdp2(model) else 0
    sharded: list[Any] = [parameter for parameter in model.parameters() if is_sharded(parameter)]
    return any(sum(not p.is_replicate() for p in parameter.placements) > own for parameter in sharded)


def is_fsdp1(model: nn.Module) -> bool:
    """True under FSDP1, which puts parts of a flat tensor in the place of parameters."""
    return any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
