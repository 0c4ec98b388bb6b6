"""Define what `tenterhook run --for-diff` records."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tenterhook.actions import digest, ratio, stats, weight_digest
from tenterhook.plan import Hook, Phase, Plan, When
from tenterhook.resolve.sharding import local


@dataclass(frozen=True, slots=True)
class DiffRun:
    """How a run is recorded that will be compared.

    Args:
        steps: Number of steps to record, from the first step on.
        perturbed: If True, `perturb` changes the weights at the beginning.
    """

    steps: int
    perturbed: bool = False


def diff_plan(steps: int) -> Plan:
    """Return a plan that records statistics and digests of every output, gradient, update and weight.

    Args:
        steps: Number of steps to record, from the first step on.
    """
    when = When(stop=steps)
    everything = (".", "**")
    hooks = [
        Hook("grads", on="**", at="grad_final", do=stats(), when=when),
        Hook("grad_ratios", on="**", at="grad_final", do=ratio(), when=when),
        Hook("updates", on="**", at="update", do=ratio(), when=when),
        Hook("weight_bits", on="**", at="grad_final", do=weight_digest(), when=when),
        Hook("grad_bits", on="**", at="grad_final", do=digest(), when=when),
        Hook("update_bits", on="**", at="update", do=digest(), when=when),
    ]
    # A model may be trained in evaluation mode, for example to freeze its batch norms.
    phases: tuple[tuple[Phase, str], ...] = (("train", ""), ("eval", "eval_"))
    for phase, name in phases:
        mode = When(stop=steps, phase=phase)
        hooks += [
            Hook(f"{name}outputs", on=everything, at="output", do=stats(), when=mode),
            Hook(f"{name}input_bits", on=".", at="input", do=digest(), when=mode),
            Hook(f"{name}output_bits", on=everything, at="output", do=digest(), when=mode),
        ]
    return Plan(hooks)


@torch.no_grad()
def perturb(model: nn.Module) -> None:
    """Change each floating-point weight by one unit in the last place, upwards at even and downwards at odd places."""
    for parameter in model.parameters():
        own = local(parameter)
        if own.is_floating_point():
            towards = torch.full(own.shape, torch.inf, dtype=own.dtype, device=own.device)
            towards.view(-1)[1::2] = -torch.inf
            own.copy_(torch.nextafter(own, towards))
