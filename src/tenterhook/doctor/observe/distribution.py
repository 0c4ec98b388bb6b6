"""Track what the program distributes over ranks: DDP replicas, FSDP2 shards and DTensors."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.hook_owner import HookLabel, Owner, is_dtensor
from tenterhook.doctor.observe.model_index import Place, caller, names_of
from tenterhook.doctor.observe.observer import Observer
from tenterhook.ranks import Board
from tenterhook.resolve.sharding import is_fsdp2

DDP, FSDP, DTENSOR = "DDP", "FSDP2", "a DTensor"


#: methods that turn a tensor into a Python number
_READS = ("item", "tolist", "__float__", "__int__", "__bool__")


@dataclass(slots=True)
class Replica:
    """A DDP module, and the parameters that it had when it was created."""

    ddp: weakref.ref[nn.Module]
    parameters: frozenset[int]
    modules: frozenset[int]
    #: where the program created the module; None if the program created the module before the exam
    place: str | None
    ranks: int
    ignored: frozenset[str]
    #: ids of the parameters that were frozen when the DDP module was created
    frozen: frozenset[int]
    #: by name of a parameter whose gradient DDP does not reduce: the reason, "unfrozen" or "added"
    strangers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, ddp: Any, place: str | None) -> Replica:
        ignored = frozenset(ddp.parameters_to_ignore)
        named = [(id(p), p.requires_grad) for name, p in ddp.module.named_parameters() if name not in ignored]
        return cls(
            weakref.ref(ddp),
            frozenset(id for id, trained in named if trained),
            frozenset(map(id, ddp.modules())),
            place,
            ddp.process_group.size(),
            ignored,
            frozenset(id for id, trained in named if not trained),
        )

    def look(self) -> None:
        ddp: Any = self.ddp()
        if ddp is None or self.ranks == 1:
            return
        for name, p in ddp.module.named_parameters():
            if p.requires_grad and p.grad is not None and id(p) not in self.parameters and name not in self.ignored:
                known_as = next(iter(names_of(ddp.module, p)), name)  # the walker does not enter scripted modules
                self.strangers.setdefault(known_as, "unfrozen" if id(p) in self.frozen else "added")


@dataclass(frozen=True, slots=True)
class Read:
    """A Python number that the program read from a partial DTensor, of which each rank holds only one summand."""

    place: str
    how: str
    value: Any
    placements: str
    ranks: int
    hook: HookLabel | None


class Distribution:
    """The facts that one exam has observed about DDP, FSDP2 and DTensor."""

    def __init__(self) -> None:
        self.replicas: list[Replica] = []
        self.reads: dict[str, Read] = {}
        self.board: Board | None = None
        #: the hook whose function is currently running
        self.firing: HookLabel | None = None
        self._groups: dict[int, weakref.ref[Any]] = {}
        self._undo: ExitStack | None = None

    def begin(self, modules: list[nn.Module], undo: ExitStack) -> None:
        """Find the existing DDP modules, and store `undo`, which will revert the patches that `look` makes."""
        self._undo = undo
        self.replicas = [Replica.of(m, None) for m in modules if isinstance(m, nn.parallel.DistributedDataParallel)]

    def look(self) -> None:
        """Patch DTensor if a process group exists. `look` runs before each backward pass and each registration."""
        if self.board is not None or self._undo is None or not dist.is_available() or not dist.is_initialized():
            return
        if dist.get_world_size() == 1 or dist.get_backend() == "fake":
            return
        from torch.distributed.tensor import DTensor

        self.board = Board()
        for name in _READS:
            own = vars(DTensor).get(name)
            setattr(DTensor, name, self._reading(getattr(DTensor, name), name))
            self._undo.callback(*((delattr, DTensor, name) if own is None else (setattr, DTensor, name, own)))

    def wrapping(self, ddp: Any, *_: Any, **__: Any) -> Observer:
        """Observe the creation of a DDP module."""
        yield
        self.replicas.append(Replica.of(ddp, caller().place))

    def _reading(self, read: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(read)
        def number(tensor: Any) -> Any:
            value = read(tensor)
            if torch.compiler.is_compiling() or tensor.numel() != 1:
                return value
            sizes = zip(tensor.placements, tensor.device_mesh.shape, strict=True)
            ranks = max((size for one, size in sizes if one.is_partial()), default=1)
            if ranks > 1 and (by := caller()).users:
                how = name.strip("_") if name.startswith("_") else f".{name}"
                self.reads.setdefault(by.place, Read(by.place, how, value, str(tensor.placements), ranks, self.firing))
            return value

        return number

    # -- the owner of a hook -------------------------------------------------------------------------------------------

    def group(self, tensor: Any, place: Place | None) -> weakref.ref[Any] | None:
        """Return the FSDP2 parameter group that shards a parameter, or None."""
        root = place.root() if place is not None else None
        if root is None or "torch.distributed.fsdp" not in sys.modules or not is_dtensor(tensor):
            return None
        if id(tensor) not in self._groups:
            for group, shards in private.shard_groups(root):
                self._groups |= {id(shard): weakref.ref(group) for shard in shards}
        found = self._groups.get(id(tensor))
        return found if found is not None and found() is not None else None

    def kind(self, owner: Owner) -> str | None:
        """Return how the owner of a hook is distributed over ranks, or None if it is not distributed."""
        if self.board is None:
            return None
        if owner.group is not None:
            return FSDP
        now = owner.now()
        if is_dtensor(now):
            return DTENSOR if now.device_mesh.size() > 1 else None
        for replica in self.replicas:
            ids = replica.modules if isinstance(now, nn.Module) else replica.parameters
            if replica.ranks > 1 and id(now) in ids and replica.ddp() is not None:
                return DDP
        if not isinstance(now, nn.Module):
            return None
        return FSDP if self.shards(owner) else DTENSOR if any(map(is_dtensor, now.parameters())) else None

    @staticmethod
    def shards(owner: Owner) -> bool:
        """Return True if FSDP2 shards the model that contains a hook's owner."""
        root = owner.place.root() if owner.place is not None else None
        return root is not None and "torch.distributed.fsdp" in sys.modules and is_fsdp2(root)

    def look_at_gradients(self) -> None:
        for replica in self.replicas:
            replica.look()
