# TH301 TH409
"""Zero the bias's gradient and damp the weight's: one hook returns nothing, the other is added in every step."""

import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def no_bias(grad):
    torch.zeros_like(grad)


model.bias.register_hook(no_bias)  # <- TH301
for batch in torch.randn(5, 8, 4):
    model.weight.register_hook(lambda grad: grad * 0.9)  # <- TH409
    optimizer.zero_grad()
    (model(batch) - 1).pow(2).mean().backward()
    optimizer.step()
result = [model.weight.detach(), model.bias.detach()]
