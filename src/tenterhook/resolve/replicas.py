"""Check that tensors with the same name on several ranks are replicas of each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from tenterhook import ranks
from tenterhook.ranks import RankGroup

#: a number for a tensor that this rank does not have; a digest is never so small
_ABSENT = -(1 << 62)
#: integers with the size of an element, whose sum is the same in any order
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}


@torch.no_grad()
def find_parts(group: RankGroup, names: Iterable[str], parameters: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of the tensors that differ between the ranks.

    Models that are split by hand have parameters with the same name that are parts of a larger one, such as the experts
    of each rank. Every rank must call this function with the same names.

    Args:
        group: The ranks that hold the model.
        names: Names of parameters that at least one rank has, in the same order on all ranks.
        parameters: The parameters of this rank.
    """
    known = list(names)
    if group.is_alone or not ranks.any_of(group, [bool(parameters)])[0]:
        return frozenset()
    digests = dict(zip(parameters, _digests(list(parameters.values())), strict=True))
    numbers = [digests.get(name, _ABSENT) for name in known]
    numbers += [-digests[name] if name in digests else _ABSENT for name in known]
    highest = group.max_of(numbers)
    found = [name for name, high, low in zip(known, highest, highest[len(known) :]) if _ABSENT != high != -low]
    if found:
        shown = ", ".join(map(repr, found[:3])) + (", ..." if len(found) > 3 else "")
        ranks.warn_once(
            f"tenterhook: {len(found)} of {len(known)} parameters differ between the ranks, so each rank's tensor is "
            f"taken as a part of a larger one: {shown}\n"
            "  remedy: if each rank trains a model of its own, give attach a group that contains only this rank",
            first=group.first,
        )
    return frozenset(found)


def _digests(tensors: list[Tensor]) -> list[int]:
    """Return a number for the values of each tensor, which is the same on every rank that has the same values."""
    sums = [_sum_of_bits(one) for one in tensors]
    values = torch.stack([one.to("cpu") for one in sums]).tolist() if sums else []
    return [(value ^ _shape_digest(one)) % (1 << 61) for value, one in zip(values, tensors, strict=True)]


def _shape_digest(tensor: Tensor) -> int:
    return int.from_bytes(hashlib.sha256(repr(tuple(tensor.shape)).encode()).digest()[:4], "big")


def _sum_of_bits(tensor: Tensor) -> Tensor:
    kind = _INTEGERS.get(tensor.element_size())
    if kind is None or tensor.layout is not torch.strided or tensor.is_meta or not tensor.numel():
        return torch.zeros((), dtype=torch.int64)
    return tensor.detach().contiguous().view(-1).view(kind).sum(dtype=torch.int64)


def wrapped_by_ddp(model: nn.Module) -> set[int]:
    """Return the ids of the parameters that DDP keeps equal on all ranks."""
    wrappers = [one for one in model.modules() if isinstance(one, nn.parallel.DistributedDataParallel)]
    return {id(parameter) for one in wrappers for parameter in one.parameters()}
