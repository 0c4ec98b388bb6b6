# TH305
import torch
from torch import nn

model = nn.Linear(3, 1)
model.weight.register_hook(lambda grad: grad * 1000)  # <- TH305
optimizer = torch.optim.Adam([model.weight], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
result = model.weight.detach()
