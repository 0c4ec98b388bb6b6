"""A forward hook in a compiled model keeps a running maximum in a buffer: one graph, whatever the step."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


def note(module, args, output):
    module.largest.copy_(torch.maximum(module.largest, output.detach().abs().max()))


model = Net()
model.body.register_buffer("largest", torch.zeros(()))
model.body.register_forward_hook(note)
fast = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    (fast(torch.randn(4 if step < 11 else 2, 4)) - 1).square().mean().backward()
    optimizer.step()
result = [model.body.largest, [p.detach() for p in model.parameters()]]
