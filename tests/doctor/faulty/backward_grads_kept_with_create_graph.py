# TH503
"""Record grad_output of a layer for a second-order method."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
recorded = []


def record(module, grad_input, grad_output):
    recorded.append(grad_output[0])


model[1].register_full_backward_hook(record)  # <- TH503
params = list(model.parameters())
for batch in torch.randn(5, 6, 3):
    loss = model(batch).pow(2).mean()
    grads = torch.autograd.grad(loss, params, create_graph=True)
    with torch.no_grad():
        for p, g in zip(params, grads):
            p -= 0.1 * g
result = [g.detach() for g in recorded]
