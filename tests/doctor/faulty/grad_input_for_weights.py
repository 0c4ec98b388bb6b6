# TH303
"""Zero the gradient in a module backward hook so that this layer does not train."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
before = model[2].weight.detach().clone()


def freeze(module, grad_input, grad_output):
    return tuple(torch.zeros_like(g) if g is not None else None for g in grad_input)


model[2].register_full_backward_hook(freeze)  # <- TH303
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
result = (model[2].weight - before).detach()
