# TH304
import torch
from torch import nn

model = nn.Linear(3, 1)
model.weight.register_hook(lambda grad: torch.zeros_like(grad))  # <- TH304
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
result = model.weight.detach()
