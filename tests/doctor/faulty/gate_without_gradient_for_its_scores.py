# TH216
"""Count the nonzero gradients of the scorer; the gate's own backward gives its scores none."""

import torch
from torch import nn


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scores):
        mask = (scores > 0).float()
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return grad * mask, None


layer, scores = nn.Linear(4, 4), nn.Parameter(torch.randn(4))
counts = []


def count(p):
    if p.grad is not None:
        counts.append(p.grad.count_nonzero())


scores.register_post_accumulate_grad_hook(count)  # <- TH216
optimizer = torch.optim.SGD([*layer.parameters(), scores], lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    Gate.apply(layer(torch.randn(3, 4)), scores).square().sum().backward()
    optimizer.step()
result = [scores.detach(), *counts]
