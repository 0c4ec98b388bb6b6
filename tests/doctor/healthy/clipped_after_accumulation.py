"""Clip each parameter's gradient by its norm as soon as it is there, with post-accumulate hooks."""

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))


def clip_parameter(param):
    clip_grad_norm_(param, max_norm=0.1)


for param in model.parameters():
    param.register_post_accumulate_grad_hook(clip_parameter)

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(64, 10)
y = (x[:, :1] * 3 - x[:, 1:2]).sin() * 10
losses = []
for epoch in range(8):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, [p.detach().clone() for p in model.parameters()]]
