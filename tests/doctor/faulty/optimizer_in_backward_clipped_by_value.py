# TH411
"""One optimizer for each layer steps as soon as its gradients are there; the values are clipped afterwards."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def install(parameter):
    optimizer = torch.optim.SGD([parameter], lr=0.05)

    def step(p):
        optimizer.step()
        p.grad = None

    parameter.register_post_accumulate_grad_hook(step)  # <- TH411


for parameter in model.parameters():
    install(parameter)
for batch in 5 * torch.randn(3, 8, 4):
    (model(batch) - 4).pow(2).mean().backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.01)  # <- TH411
result = [p.detach() for p in model.parameters()]
