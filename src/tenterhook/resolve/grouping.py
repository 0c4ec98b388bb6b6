"""Find the ranks that hold a model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.errors import RanksError, ResolveError
from tenterhook.ranks import RankGroup
from tenterhook.resolve.targets import is_sharded

#: what `group=` accepts: a process group, or a mesh
Group: TypeAlias = "dist.ProcessGroup | DeviceMesh"


def find_group(what: str, model: nn.Module, given: Group | None, *, patience: float | None = None) -> RankGroup:
    """Return the ranks that hold the model, after all of them have called this function.

    If no group is given, these are the ranks of the meshes of its parameters and of its DDP modules. If there are none,
    or if the model is a stage of a pipeline, these are all ranks.

    Args:
        what: The public call that an error names.
        model: The model.
        given: The group that the program passed, or None.
        patience: The number of seconds to wait for the other ranks.
    """
    _check(given, patience)
    if ranks.world_size() == 1:
        return RankGroup()
    if given is not None:
        group = RankGroup(ranks_of(given), patience=patience)
        group.meet(what)
        return group
    group = RankGroup(_members(model), patience=patience)
    group.meet(what)
    return _part_of(group, what, model)


def _check(given: object, patience: float | None) -> None:
    if given is not None and not isinstance(given, dist.ProcessGroup | DeviceMesh):
        raise ResolveError(
            f"group= must be a process group or a device mesh, but its type is {type(given).__name__}",
            remedy="pass what dist.new_group(...) or init_device_mesh(...) returned",
        )
    if patience is not None and not (isinstance(patience, int | float) and patience > 0):
        raise ResolveError(
            f"patience= must be a positive number of seconds, but it is {patience!r}",
            remedy="write, for example, patience=60",
        )


def ranks_of(given: Group) -> list[int]:
    """Return the ranks of a process group or mesh, in ascending order. This rank must be one of them."""
    _check(given, None)
    members = sorted(given.mesh.flatten().tolist() if isinstance(given, DeviceMesh) else _ranks_of(given))
    if ranks.rank() not in members:
        raise ResolveError(
            f"this process is rank {ranks.rank()}, but the group has the ranks {', '.join(map(str, members[:8]))}"
            f"{', ...' if len(members) > 8 else ''}",
            remedy="call attach only on the ranks of the group",
        )
    return members


def _ranks_of(group: Any) -> list[int]:
    return list(dist.get_process_group_ranks(group))


def _members(model: nn.Module) -> list[int] | None:
    """Return the ranks of the model, or None if these are all ranks."""
    found = {by for mesh in _meshes(model) for by in private.root_mesh(mesh).mesh.flatten().tolist()}
    if not found and private.is_stage(model):
        return None
    inside: list[Any] = [one for one in model.modules() if isinstance(one, nn.parallel.DistributedDataParallel)]
    for wrapper in (*inside, *private.ddp_around(model)):
        found.update(_ranks_of(wrapper.process_group))
    return sorted(found) if ranks.rank() in found else None


def _meshes(model: nn.Module) -> Iterable[Any]:
    """Return the meshes of the model's sharded parameters."""
    sharded: list[Any] = [one for one in model.parameters() if is_sharded(one)]
    return {id(one.device_mesh): one.device_mesh for one in sharded}.values()


def _part_of(group: RankGroup, what: str, model: nn.Module) -> RankGroup:
    """Return the ranks that have the same model as this one.

    An actor and a critic on parts of one mesh may have the same names. They are different models if no rank has both.
    """
    own = sorted({by for mesh in _meshes(model) for by in mesh.mesh.flatten().tolist()})
    if ranks.all_equal(group, hashlib.sha256(repr(own).encode()).digest()):
        return group
    names = [name for name, _ in model.named_parameters()]
    texts = ranks.distinct_texts(group, json.dumps([own, names]))
    others = [json.loads(text) for text in texts.values()]
    namesakes = [theirs for theirs, named in others if named == names and own and not set(own) & set(theirs)]
    if not namesakes:
        return group
    if any(ranks.any_of(group, [private.is_stage(model)])):
        raise RanksError(
            "the stages of the pipeline have the same names on different meshes, so the hooks cannot tell their "
            f"parameters apart: {names[0]!r} is on the ranks {own[0]}, ... and {namesakes[0][0]}, ...",
            remedy="give each stage the names of the whole model, or pass the ranks of one stage as group=",
        )
    part = RankGroup(own, patience=group.patience)
    part.meet(what)
    return part
