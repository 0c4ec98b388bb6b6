"""Hooks on the parameters of a compiled model, some registered when it has run already, one of them taken off."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


norms = []
model = Net()
model.head.weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
fast = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    (fast(torch.randn(4, 4)) - 1).square().mean().backward()
    optimizer.step()
    if step == 1:
        handle = model.body.weight.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.norm().item()))
handle.remove()
result = [norms, [p.detach() for p in model.parameters()]]
