# TH231
"""Count the active units, except while torch.compile traces the model, so the compiled code counts nothing."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


torch.manual_seed(0)
model = Net()
active = torch.zeros(8)


def count(module, args, output):
    if not torch.compiler.is_compiling():
        active.add_((output.detach() > 0).sum(0))


model.body.register_forward_hook(count)  # <- TH231
fast = torch.compile(model, backend="eager")
for batch in torch.randn(3, 2, 4):
    fast(batch).sum().backward()
result = active
