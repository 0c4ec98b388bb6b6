"""Check that tensors with the same name on several ranks are replicas of each other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.ranks import RankGroup
from tenterhook.resolve.targets import is_sharded

#: a number for a tensor that this rank does not have; a digest is never so small
_ABSENT = -(1 << 62)
#: norms of the gradients of replicas may differ by this fraction, because kernels on a device may round differently
_ROUNDING = 1e-3
#: integers with the size of an element, whose sum is the same in any order
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}


@torch.no_grad()
def find_parts(group: RankGroup, names: Iterable[str], parameters: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of the tensors that are not the same on all ranks.

    Models that are split by hand have parameters with the same name that are parts of a larger one, such as the experts
    of each rank. These may have the same values at first, but not the same gradients. A sharded tensor may be on
    another mesh on other ranks, as a replica or as another part. Every rank must call this function with the same
    names.

    Args:
        group: The ranks that hold the model.
        names: Names of parameters that at least one rank has, in the same order on all ranks.
        parameters: The parameters of this rank that nothing keeps equal on all ranks.
    """
    if group.is_alone or not ranks.any_of(group, [bool(parameters)])[0]:
        return frozenset()
    known = list(names)
    plain = {name: one for name, one in parameters.items() if not is_sharded(one)}
    sharded = {name: one for name, one in parameters.items() if name not in plain}
    numbers = dict(zip(plain, _digests(list(plain.values())), strict=True))
    numbers |= {name: _number(repr(_mesh_of(one).mesh.flatten().tolist())) for name, one in sharded.items()}
    parts = _differing(group, known, numbers) | _differing_norms(group, known, plain)
    found = [name for name in known if name in parts]
    # Replicas may be on different meshes. Then, shards at the same place of their meshes are equal.
    apart = {name: one for name, one in sharded.items() if name in parts}
    size = group.max_of([max((_mesh_of(one).size() for one in apart.values()), default=0)])[0]
    if size:
        places = [f"{name}/{place}" for name in found for place in range(size)]
        here = {f"{name}/{_place_of(one)}": _local(one) for name, one in apart.items()}
        here |= {f"{name}/0": one for name, one in plain.items() if name in parts}
        digests = dict(zip(here, _digests(list(here.values())), strict=True))
        grads = {f"{name}/{_place_of(one)}": one for name, one in apart.items()}
        differing = _differing(group, places, digests) | _differing_norms(group, places, grads)
        parts = {place.rpartition("/")[0] for place in differing}
        found = [name for name in found if name in parts]
    if found:
        shown = ", ".join(map(repr, found[:3])) + (", ..." if len(found) > 3 else "")
        ranks.warn_once(
            f"tenterhook: {len(found)} of {len(known)} parameters differ between the ranks, so each rank's tensor is "
            f"taken as a part of a larger one: {shown}\n"
            "  remedy: if not all ranks train the same model, give attach the group of the ranks that do",
            first=group.first,
        )
    return frozenset(found)


def _differing(group: RankGroup, names: Sequence[str], numbers: Mapping[str, int]) -> set[str]:
    """Return the names whose numbers differ between the ranks that have one."""
    given = [numbers.get(name, _ABSENT) for name in names]
    given += [-numbers[name] if name in numbers else _ABSENT for name in names]
    highest = group.max_of(given)
    return {name for name, high, low in zip(names, highest, highest[len(names) :]) if _ABSENT != high != -low}


def _differing_norms(group: RankGroup, names: Sequence[str], parameters: Mapping[str, Tensor]) -> set[str]:
    """Return the names of the parameters whose gradients have different norms on the ranks that have one."""
    grads = {name: _local(one.grad) for name, one in parameters.items() if _is_final(one.grad)}
    norms = [torch.linalg.vector_norm(one.float()).cpu().double() for one in grads.values()]
    known = dict(zip(grads, torch.stack(norms).tolist() if norms else (), strict=True))
    given = [known.get(name, -math.inf) for name in names] + [-known.get(name, math.inf) for name in names]
    found = group.max(torch.tensor(given, dtype=torch.float64, device="cpu")).tolist()
    pairs = zip(names, found, found[len(names) :])
    return {name for name, high, low in pairs if high + low > _ROUNDING * abs(high)}


def _digests(tensors: list[Tensor]) -> list[int]:
    """Return a number for the values of each tensor, which is the same on every rank that has the same values."""
    sums = [_sum_of_bits(one) for one in tensors]
    values = torch.stack([one.to("cpu") for one in sums]).tolist() if sums else []
    return [(value ^ _number(repr(tuple(one.shape)))) % (1 << 61) for value, one in zip(values, tensors, strict=True)]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def _sum_of_bits(tensor: Tensor) -> Tensor:
    kind = _INTEGERS.get(tensor.element_size())
    if kind is None or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return torch.zeros((), dtype=torch.int64, device="cpu")
    bits = tensor.int_repr() if tensor.is_quantized else tensor.detach().contiguous().view(-1).view(kind)
    return bits.sum(dtype=torch.int64)


def _mesh_of(tensor: Any) -> Any:
    return tensor.device_mesh


def _local(tensor: Any) -> Tensor:
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return part


def _is_final(grad: Any) -> bool:
    """Return True if there is a gradient that can be measured, and that is not still to be summed over ranks."""
    if grad is None or grad.layout is not torch.strided or grad.is_complex():
        return False
    return not is_sharded(grad) or not any(one.is_partial() for one in grad.placements)


def _place_of(tensor: Any) -> int:
    """Return the place of this rank in the mesh of a tensor, in row-major order."""
    place, shape = 0, _mesh_of(tensor).mesh.shape
    for at, size in zip(_mesh_of(tensor).get_coordinate() or [0] * len(shape), shape, strict=True):
        place = place * size + at
    return place


def kept_equal_by_ddp(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that DDP keeps equal on all ranks."""
    kept: set[int] = set()
    for wrapper in model.modules():
        if isinstance(wrapper, nn.parallel.DistributedDataParallel):
            ignored = set(wrapper.parameters_to_ignore)
            kept.update(id(one) for name, one in wrapper.module.named_parameters() if name not in ignored)
    return kept
