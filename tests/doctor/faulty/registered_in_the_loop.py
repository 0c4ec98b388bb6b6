# TH409
"""Scale the gradient a little; the hook is registered in each step."""

import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(16, 4), torch.randn(16, 1)
norms = []
for step in range(5):
    model.weight.register_hook(lambda grad: grad * 0.5)  # <- TH409
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    norms.append(model.weight.grad.norm())
    optimizer.step()
result = norms
