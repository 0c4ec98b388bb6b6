# TH428
"""Step in a hook, although the gradients of four micro-batches are to be added up."""

import torch
from torch import nn

torch.manual_seed(0)
PARTS = 4
model = nn.Linear(3, 1)
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)  # <- TH428
for step in range(2):
    for part in range(PARTS):
        loss = model(torch.randn(2, 3)).square().mean() / PARTS
        loss.backward()
result = model.weight
