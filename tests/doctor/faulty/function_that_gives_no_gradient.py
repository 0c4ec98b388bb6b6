# TH216
"""A rounding whose backward forgets the gradient: the hook on the weight is called with None each time."""

import torch


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, grad):
        return None, None


def clip(grad):
    if grad is not None:
        return grad.clamp(-1, 1)


weight = torch.randn(4, 4, requires_grad=True)
weight.register_hook(clip)  # <- TH216
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    (torch.randn(2, 4) @ Quantize.apply(weight, 8)).square().mean().backward()
    optimizer.step()
result = weight.detach()
