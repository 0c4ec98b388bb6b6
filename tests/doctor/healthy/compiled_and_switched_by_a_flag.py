"""A hook in a compiled model is switched on and off by a flag, and removed at the end: two graphs, then a third."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


class Steering:
    on = False

    def __call__(self, module, args, output):
        return output + 1 if self.on else None


steering = Steering()
model = Net().eval()
handle = model.body.register_forward_hook(steering)
fast = torch.compile(model, backend="eager")
outs = []
with torch.no_grad():
    for step in range(10):
        steering.on = step % 2 == 1
        outs.append(fast(torch.ones(2, 4)))
    handle.remove()
    outs.append(fast(torch.ones(2, 4)))
result = outs
