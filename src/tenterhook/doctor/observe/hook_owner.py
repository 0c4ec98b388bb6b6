"""Describe the object on which a raw hook is registered, and the place of that object in the model."""

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
    """Return True for a DTensor, without importing `torch.distributed.tensor` if the program has not imported it."""
    return "torch.distributed.tensor" in sys.modules and isinstance(value, Tensor) and is_sharded(value)


@dataclass(frozen=True, slots=True)
class HookLabel:
    """A hook's function, its target, and the PyTorch function that registered the hook."""

    function: str
    target: str
    kind: str


class Owner:
    """The tensor, module or optimizer on which a hook is registered.

    A parameter is identified by its place in the model, because a weak reference would prevent
    `torch.utils.swap_tensors`.
    """

    def __init__(self, owner: Any, place: Place | None, group: weakref.ref[Any] | None = None) -> None:
        self.kind = type(owner).__name__
        self.id = id(owner)
        self.place = place
        self.is_dtensor = is_dtensor(owner)
        #: the FSDP2 parameter group that shards the parameter
        self.group = group
        tensor = owner if isinstance(owner, Tensor) else None
        self.leaf = tensor is not None and tensor.is_leaf
        self.made_by = type(tensor.grad_fn).__name__ if tensor is not None and tensor.grad_fn is not None else None
        #: for a tensor that is not a leaf, the key of the node that made it
        self.node = private.node_key(tensor.grad_fn) if tensor is not None and tensor.grad_fn is not None else None
        #: the index of the tensor among the outputs of this node
        self.output = tensor.output_nr if tensor is not None else 0
        self.address = private.implementation(tensor) if tensor is not None else 0
        self.version = private.version(tensor) if tensor is not None else None
        self.shape = list(tensor.shape) if tensor is not None else None
        placed = place is not None and place.key != ""
        self.ref = None if placed else weakref.ref(owner)

    def now(self) -> Any:
        """Return the object, or None if it was freed. For a parameter, return the model's current tensor."""
        if self.ref is not None:
            return self.ref()
        module = self.place.module() if self.place is not None else None
        return None if module is None or self.place is None else private.own_parameters(module).get(self.place.key)

    @property
    def exists(self) -> bool:
        """Return True if the model of which the object is a part, or else the object itself, still exists."""
        return self.place.root() is not None if self.place is not None else self.now() is not None

    @property
    def is_parameter(self) -> bool:
        return self.ref is None

    @property
    def replaced(self) -> bool:
        """Return True if a different tensor has replaced the hooked parameter in the model."""
        if not self.is_parameter:
            return False
        now = self.now()
        if self.group is not None and isinstance(now, Tensor) and not is_dtensor(now):
            return False  # FSDP2 uses the unsharded parameter until the backward pass
        return now is None or id(now) != self.id or private.implementation(now) != self.address

    @property
    def name(self) -> str:
        if self.place is not None:
            return self.place.name
        if self.shape is not None:
            return f"tensor{self.shape} of {self.made_by}" if self.made_by else f"leaf{self.shape}"
        return self.kind
