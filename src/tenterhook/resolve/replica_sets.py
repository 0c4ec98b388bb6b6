"""Find which tensors of this rank are replicas of tensors on other ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from tenterhook.resolve.targets import is_sharded


def replica_sets(named: Iterable[tuple[int, Tensor]], *, parts: frozenset[int], ranks: int) -> dict[str, list[int]]:
    """Sort the tensors of this rank into sets, each of which has replicas on the same ranks.

    Args:
        named: The number of each tensor, which is the same on all ranks, and this rank's tensor.
        parts: Numbers of the tensors of which each rank has its own part.
        ranks: Number of ranks that hold the model.

    Returns:
        The numbers of the tensors in each set. The keys are equal on the ranks that have the same set. Tensors without
        a replica are left out.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for number, tensor in named:
        key = _place_of(tensor, is_part=number in parts, ranks=ranks)
        if key:
            found.setdefault(key, []).append((number, f"{number} {tuple(tensor.shape)} {tensor.dtype}"))
    # The texts in the key let only ranks with the same tensors have the same set.
    return {f"{key} {_digest(text for _, text in some)}": [number for number, _ in some] for key, some in found.items()}


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


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
