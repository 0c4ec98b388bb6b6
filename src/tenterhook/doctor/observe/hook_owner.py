"""The object that a raw hook is registered on, and where it stands in its model."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.model_index import Place
from tenterhook.resolve.targets import is_sharded


def is_dtensor(value: Any) -> bool:
    """Return True for a DTensor; import nothing, since a process without that module has none."""
    return "torch.distributed.tensor" in sys.modules and isinstance(value, Tensor) and is_sharded(value)


@dataclass(frozen=True, slots=True)
class HookLabel:
    """Name a hook: its function, what it is on, and the register function that put it there."""

    function: str
    target: str
    kind: str


class Owner:
    """What a hook is on. A parameter is known by its place: a weak reference to it would forbid swapping it."""

    def __init__(self, owner: Any, place: Place | None, group: weakref.ref[Any] | None = None) -> None:
        self.kind = type(owner).__name__
        self.id = id(owner)
        self.place = place
        #: a DTensor; what FSDP2 shards it with
        self.is_dtensor = is_dtensor(owner)
        self.group = group
        tensor = owner if isinstance(owner, Tensor) else None
        self.leaf = tensor is not None and tensor.is_leaf
        self.made_by = type(tensor.grad_fn).__name__ if tensor is not None and tensor.grad_fn is not None else None
        self.address = private.implementation(tensor) if tensor is not None else 0
        self.version = private.version(tensor) if tensor is not None else None
        self.shape = list(tensor.shape) if tensor is not None else None
        placed = place is not None and place.key != ""
        self.ref = None if placed else weakref.ref(owner)

    def now(self) -> Any:
        """The object, or what stands at its place; None if it is gone."""
        if self.ref is not None:
            return self.ref()
        module = self.place.module() if self.place is not None else None
        return None if module is None or self.place is None else private.own_parameters(module).get(self.place.key)

    @property
    def is_parameter(self) -> bool:
        return self.ref is None

    @property
    def replaced(self) -> bool:
        """Whether another tensor stands where the hooked one stood."""
        if not self.is_parameter:
            return False
        now = self.now()
        if self.group is not None and isinstance(now, Tensor) and not is_dtensor(now):
            return False  # between forward and backward the whole stands there
        return now is None or id(now) != self.id or private.implementation(now) != self.address

    @property
    def name(self) -> str:
        if self.place is not None:
            return self.place.name
        if self.shape is not None:
            return f"tensor{self.shape} of {self.made_by}" if self.made_by else f"leaf{self.shape}"
        return self.kind
