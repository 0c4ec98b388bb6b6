# TH205
"""Keep the padding row of an embedding at zero by a hook, and load the weights with assign=True after that."""

import tempfile

import torch
from torch import nn


def no_padding(grad):
    grad = grad.clone()
    grad[0] = 0
    return grad


model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
with tempfile.TemporaryFile() as file:
    torch.save(model.state_dict(), file)
    file.seek(0)
    weights = torch.load(file)
before = weights["0.weight"][0].clone()
model[0].weight.register_hook(no_padding)  # <- TH205
model.load_state_dict(weights, assign=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.tensor([[0, 1, 2], [0, 3, 4]])).square().mean().backward()
    optimizer.step()
result = [before, model[0].weight.detach()[0]]
