"""Measure what every module receives and returns, while a step runs again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tenterhook.rig.runtime.tensor_tree import leaves


@dataclass(slots=True)
class ModuleProfile:
    """The inputs and outputs of one call of a module, and the gradient that reached its output.

    A number is None if there was no such tensor.
    """

    name: str
    input_rms: float | None = None
    output_rms: float | None = None
    output_max: float | None = None
    #: the share of elements of the output that are zero
    zeros: float | None = None
    gradient_rms: float | None = None


class Profiles:
    """The profiles of all calls of modules, in the order in which the calls ended.

    Args:
        names: The names of the modules.
    """

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self.found: list[ModuleProfile] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the calls in a block, except those in a backward pass, which recompute a part of a call."""
        handles = [module.register_forward_hook(self._end, with_kwargs=True) for module in self._names]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        profile = ModuleProfile(self._names[module])
        taken = _floats((args, kwargs))
        made = _floats(output)
        if taken:
            profile.input_rms = rms(taken[0])
        if made:
            profile.output_rms, profile.output_max = rms(made[0]), float(made[0].abs().max())
            profile.zeros = float((made[0] == 0).float().mean())
            if made[0].requires_grad:
                made[0].register_hook(lambda gradient: setattr(profile, "gradient_rms", rms(gradient)))
        self.found.append(profile)


def rms(tensor: Tensor) -> float:
    """Return the root mean square of a tensor."""
    value = tensor.detach()
    return float(value.float().square().mean().sqrt())


def _floats(tree: Any) -> list[Tensor]:
    return [one for one in leaves(tree) if one.is_floating_point() and one.numel() and one.layout is torch.strided]
