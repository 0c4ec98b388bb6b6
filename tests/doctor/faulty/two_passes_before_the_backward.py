# TH521
"""Compute gradients of single samples for pairs. The hook keeps the input of the second pass only."""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
samples = []


def keep(module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    module.activation = args[0].detach()


def combine(module: nn.Module, grad_input: object, grad_output: tuple[torch.Tensor, ...]) -> None:
    samples.append(grad_output[0].unsqueeze(2) * module.activation.unsqueeze(1))


encoder[0].register_forward_hook(keep)  # <- TH521
encoder[0].register_full_backward_hook(combine)
(encoder(torch.randn(4, 2)) - encoder(torch.randn(4, 2))).square().sum().backward()
result = torch.allclose(sum(samples).sum(0), encoder[0].weight.grad)
