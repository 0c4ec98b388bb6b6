"""Truncated backpropagation through time: the state is detached between chunks; hooks limit the state's gradient."""

import torch
import torch.nn.functional as F
from torch import nn

gru = nn.GRU(6, 24, batch_first=True)
head = nn.Linear(24, 6)
parameters = [*gru.parameters(), *head.parameters()]
optimizer = torch.optim.RMSprop(parameters, lr=5e-3)
flows = []
gru.register_forward_hook(lambda m, args, out: flows.append(out[1].detach().norm()))


def limit(grad):
    return grad * (1e-3 / grad.norm().clamp(min=1e-3))


series = torch.randn(4, 41, 6).cumsum(dim=1) * 0.1
state, losses = torch.zeros(1, 4, 24), []
for start in range(0, 40, 8):
    inputs, targets = series[:, start : start + 8], series[:, start + 1 : start + 9]
    output, state = gru(inputs, state.detach())
    output.register_hook(limit)
    loss = F.mse_loss(head(output), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, flows, [p.detach().clone() for p in parameters]]
