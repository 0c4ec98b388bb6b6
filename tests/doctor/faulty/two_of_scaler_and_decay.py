# TH304 TH309
"""With a loss scale, one weight is to be held and another's gradient limited."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
model[0].weight.register_hook(lambda grad: grad * 0)  # <- TH304
model[2].weight.register_hook(lambda grad: grad.clamp(-0.5, 0.5))  # <- TH309
for batch in torch.randn(3, 8, 4):
    optimizer.zero_grad()
    scaler.scale((model(batch) - 3).pow(2).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
result = [p.detach() for p in model.parameters()]
