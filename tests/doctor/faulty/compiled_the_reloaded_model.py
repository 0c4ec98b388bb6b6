# TH206
"""Resume: hooks are on the model that was saved, and another one is loaded, compiled and trained."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).relu())


saved = Net()
saved.head.weight.register_hook(lambda grad: grad * 0)  # <- TH206
model = Net()
model.load_state_dict(saved.state_dict())
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    compiled(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
result = model.head.weight.detach()
