"""The model as it stands now: names, wrappers, which optimizer holds what."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.optim import Optimizer

from tenterhook import ranks
from tenterhook import torch_internals as private
from tenterhook.resolve.sharding import flattened, fully_sharded, tensor_parallel
from tenterhook.resolve.targets import Names, names_of


class Ground:
    """The model as it stands: names, wrappers, who optimizes what."""

    def __init__(self, model: nn.Module, optimizers: Mapping[str, Optimizer]) -> None:
        self.names: Names = names_of(model, optimizers)
        self.optimizers = optimizers
        self.optimized = optimizer_of(optimizers)
        self.ranks = ranks.world_size()
        self.fully_sharded = self.names.sharded and fully_sharded(model)
        self.tensor_parallel = self.names.sharded and tensor_parallel(model)
        self.reduced_apart = self.fully_sharded and private.reduced_apart(model)
        self.flat = self.ranks > 1 and flattened(model)
        self.split = self.ranks > 1 and private.splits_backward(model)


def optimizer_of(optimizers: Mapping[str, Optimizer]) -> dict[int, str]:
    """The name of the optimizer that holds each parameter, by the parameter's id."""
    held: dict[int, str] = {}
    for name, optimizer in optimizers.items():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                held[id(parameter)] = name
    return held
