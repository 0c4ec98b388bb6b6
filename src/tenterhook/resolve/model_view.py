"""Read the facts about a model that the resolver needs: names, wrappers, sharding and optimizers."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.resolve.sharding import is_fsdp1, is_fsdp2, is_tensor_parallel
from tenterhook.resolve.targets import ModelTargets, targets_of


class ModelView:
    """The facts about a model that the resolver needs. The facts are collected once."""

    def __init__(self, model: nn.Module, optimizers: Mapping[str, Optimizer], *, ranks: int = 1) -> None:
        self.targets: ModelTargets = targets_of(model, optimizers)
        self.optimizers = optimizers
        self.held_by = held_by(optimizers)
        #: the number of ranks that hold the model
        self.ranks = ranks
        self.fsdp2 = is_fsdp2(model)  # during a forward pass, no parameter of such a model is sharded
        self.tensor_parallel = self.targets.sharded and is_tensor_parallel(model)
        #: True if FSDP2 reduces the gradients in a dtype other than their own
        self.reduces_in_other_dtype = self.fsdp2 and private.reduces_in_other_dtype(model)
        self.fsdp1 = self.ranks > 1 and is_fsdp1(model)
        #: True if the pipeline schedule splits each backward pass into two parts
        self.splits_backward = self.ranks > 1 and private.splits_backward(model)


def held_by(optimizers: Mapping[str, Optimizer]) -> dict[int, set[str]]:
    """Map the id of each parameter to the names of the optimizers that hold the parameter."""
    held: dict[int, set[str]] = {}
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                held.setdefault(id(parameter), set()).add(name)
    return held


def sharing(optimizers: Mapping[str, Optimizer], clock: str | None) -> set[str]:
    """Return the optimizers that train a parameter of the clock optimizer: their steps take the place of its steps."""
    if clock is None:
        return set()
    return {clock}.union(*(names for names in held_by(optimizers).values() if clock in names))
