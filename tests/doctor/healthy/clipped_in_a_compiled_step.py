"""Gradients are clipped in a function that is compiled, and a hook scales one of them before."""

import torch
from torch import nn

model = nn.Linear(3, 1)
model.weight.register_hook(lambda grad: grad * 0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="eager", fullgraph=True)
def clip():
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


for _ in range(3):
    optimizer.zero_grad()
    (model(torch.randn(8, 3)) - 1).square().mean().backward()
    clip()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
