"""Find the shard of a tensor that this rank holds, and decide which shards are counted in a merge over ranks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.errors import RefusedError
from tenterhook.resolve.targets import is_sharded

#: points at which all ranks have the same value, or shards of the same tensor; at other points, each rank has its own
#: value
GLOBAL_POINTS = ("grad_final", "update")
#: in place of the rank whose replica is counted: each rank has its own part of the tensor
EVERY = -1


def local(tensor: Tensor) -> Tensor:
    """Return the shard that this rank holds. The shard shares memory with the tensor."""
    if not is_sharded(tensor):
        return tensor
    sharded: Any = tensor
    part: Tensor = sharded.to_local()
    return part


def is_counted_here(tensor: Tensor, first: int) -> bool:
    """Return True if the shard of this rank is counted in a merge over all ranks.

    If a shard has several replicas, only one of them is counted. `first` is the lowest rank that has the tensor, or
    EVERY.
    """
    if not is_sharded(tensor):
        return first in (EVERY, ranks.rank())
    sharded: Any = tensor
    return _is_counted_here(sharded.device_mesh, sharded.placements, first)


@lru_cache(maxsize=256)
def _is_counted_here(mesh: Any, placements: tuple[Any, ...], first: int) -> bool:
    if any(p.is_partial() for p in placements):
        raise RefusedError(
            "this gradient is not yet summed over ranks", remedy="use grad_final, which is the summed gradient"
        )
    place = mesh.get_coordinate()
    if place is None or (first != EVERY and first not in mesh.mesh):
        return False
    replicas = (p.is_replicate() for p in placements)
    return all(not copied or at == 0 for at, copied in zip(place, replicas, strict=True))


def reduce_partial(tensor: Tensor) -> Tensor:
    """Sum a gradient with partial placements over the ranks of its mesh, and return any other tensor unchanged.

    Every rank in the mesh must call this function.
    """
    if not is_partial(tensor):
        return tensor
    from torch.distributed.tensor import Replicate

    sharded: Any = tensor
    summed: Tensor = sharded.redistribute(placements=[Replicate() if p.is_partial() else p for p in sharded.placements])
    return summed


def is_partial(tensor: Tensor) -> bool:
    """Return True if this rank has only a partial sum."""
    sharded: Any = tensor
    return is_sharded(tensor) and _is_partial(sharded.placements)


@lru_cache(maxsize=256)
def _is_partial(placements: tuple[Any, ...]) -> bool:
    return any(p.is_partial() for p in placements)


def is_fsdp2(model: nn.Module) -> bool:
    """Return True if FSDP2 shards the model. FSDP2 gathers the parameters for each forward and backward pass.

    The class is recognized by its name, because importing it takes long.
    """
    return any(map(_is_fsdp2_class, set(map(type, model.modules()))))


def _is_fsdp2_class(kind: type) -> bool:
    return any(cls.__name__ == "FSDPModule" for cls in kind.__mro__)


def reshard(model: nn.Module) -> None:
    """Free the parameters that FSDP2 has gathered."""
    sharded: list[Any] = [module for module in model.modules() if _is_fsdp2_class(type(module))]
    for module in sharded:
        module.reshard()


def is_tensor_parallel(model: nn.Module) -> bool:
    """Return True if modules compute with shards of their parameters, so that inputs and outputs may be shards."""
    own = 1 if is_fsdp2(model) else 0
    sharded: list[Any] = [parameter for parameter in model.parameters() if is_sharded(parameter)]
    return any(sum(not p.is_replicate() for p in parameter.placements) > own for parameter in sharded)


def is_fsdp1(model: nn.Module) -> bool:
    """Return True if the model uses FSDP1, which replaces the parameters with parts of a flat tensor."""
    return any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
