"""A SIREN (sine activations with a frequency of 30) that fits an image of waves."""

import hashlib
import math

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class Sine(nn.Module):
    def __init__(self, inputs, outputs, first=False):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        bound = 1 / inputs if first else math.sqrt(6 / inputs) / 30
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(30 * self.linear(x))


torch.set_num_threads(1)
torch.manual_seed(68)
grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 40), torch.linspace(-1, 1, 40), indexing="ij"), 2).view(-1, 2)
image = (torch.sin(9 * grid[:, 0] * grid[:, 1]) + torch.cos(14 * grid.norm(dim=1)))[:, None] / 2
model = nn.Sequential(Sine(2, 48, first=True), Sine(48, 48), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _step in range(600):
    loss = (model(grid) - image).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.2e}")
assert losses[-1] < 0.02 * losses[0]
print("digest", digest(model))
