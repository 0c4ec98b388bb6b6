# TH503
"""Keep the gradients of the hidden layer, in a loop with a gradient penalty."""

import torch
from torch import nn

encoder, critic = nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 1))
history = []
for batch in torch.randn(5, 6, 3):
    hidden = encoder(batch)
    hidden.register_hook(lambda grad: history.append(grad))  # <- TH503
    score = critic(hidden).sum()
    (g,) = torch.autograd.grad(score, encoder.weight, create_graph=True)
    with torch.no_grad():
        encoder.weight -= 0.01 * g
result = [g.detach() for g in history]
