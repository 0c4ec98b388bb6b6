"""Unroll one LSTM cell over the sequence; watch the state and the gradient of the state at each time step."""

import torch
from torch import nn


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 16)
        self.readout = nn.Linear(16, 1)

    def forward(self, series):
        h = c = series.new_zeros(series.shape[0], 16)
        for x in series.unbind(dim=1):
            h, c = self.cell(x, (h, c))
        return self.readout(h)


model = Unrolled()
state_norms, grad_norms = [], []


def watch_state(module, inputs, output):
    h, c = output
    state_norms.append(c.detach().norm().item())
    if h.requires_grad:
        h.register_hook(lambda grad: grad_norms.append(grad.norm().item()))


model.cell.register_forward_hook(watch_state)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
losses = []
for step in range(5):
    series = torch.randn(8, 10, 4)
    loss = (model(series) - series.sum(dim=(1, 2)).unsqueeze(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, state_norms, grad_norms, [p.detach().clone() for p in model.parameters()]]
