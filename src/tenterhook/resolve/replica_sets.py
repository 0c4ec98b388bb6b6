"""Find which tensors of this rank are replicas of tensors on other ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from tenterhook.resolve.targets import is_sharded

#: a set of replicas: for each tensor, its number and a text that is the same on all ranks that have it
Tensors = dict[str, str]


def replica_sets(
    named: Iterable[tuple[int, Tensor]], *, parts: frozenset[int], ranks: int, uneven: bool
) -> dict[str, Tensors]:
    """Sort the tensors of this rank into sets, each of which has replicas on the same ranks.

    Args:
        named: The number of each tensor, which is the same on all ranks, and this rank's tensor.
        parts: Numbers of the tensors of which each rank has its own part.
        ranks: Number of ranks that hold the model.
        uneven: True if not all ranks have the same tensors, for example in a pipeline. Then only ranks with exactly the
            same tensors have the same set.

    Returns:
        The tensors of each set. Tensors without a replica are left out.
    """
    found: dict[str, Tensors] = {}
    for number, tensor in named:
        key = _place_of(tensor, is_part=number in parts, ranks=ranks)
        if key:
            found.setdefault(key, {})[str(number)] = f"{tuple(tensor.shape)} {tensor.dtype}"
    if not uneven:
        return found
    return {f"{key} {_digest(tensors)}": tensors for key, tensors in found.items()}


def common_tensors(sets: Iterable[Tensors]) -> tuple[list[int], list[int]]:
    """Return the numbers of the tensors that all ranks have in a set, and of those that differ or are lacking."""
    given = list(sets)
    numbers = {number for one in given for number in one}
    common = {n for n in numbers if len({one.get(n) for one in given}) == 1}
    return sorted(map(int, common)), sorted(map(int, numbers - common))


def _place_of(tensor: Any, *, is_part: bool, ranks: int) -> str:
    """Return a text that only replicas of a tensor have in common, or "" if there is no replica."""
    if not is_sharded(tensor):
        return "" if is_part else "whole"
    mesh, placements = tensor.device_mesh, tensor.placements
    at = mesh.get_coordinate()
    if at is None:
        return ""
    spans = mesh.size() == ranks  # a mesh of fewer ranks may have replicas on other meshes
    if not any(one.is_replicate() for one in placements) and (spans or is_part):
        return ""
    place = [f"{n}{one}" for n, one in zip(at, placements, strict=True) if not one.is_replicate()]
    return f"{mesh.mesh.flatten().tolist() if is_part else 'all'} {place}"


def _digest(tensors: Tensors) -> str:
    return hashlib.sha256(repr(sorted(tensors.items())).encode()).hexdigest()[:16]
