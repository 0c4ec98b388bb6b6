# TH304 TH305
"""Under AdamW, hold the body by a zero gradient and speed up the head by a factor: neither works."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x).tanh())


model = Net()
model.body.weight.register_hook(lambda grad: torch.zeros_like(grad))  # <- TH304
model.head.weight.register_hook(lambda grad: grad * 100)  # <- TH305
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for batch in torch.randn(4, 8, 4):
    optimizer.zero_grad()
    (model(batch) - 1).pow(2).mean().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
