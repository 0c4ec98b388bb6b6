"""Stochastic depth: each of eight blocks is left out in up to half of the steps and then has no gradient."""

import hashlib
import random

import torch
from sklearn.datasets import load_digits
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


def digits():
    """Return the 8x8 digits as images and labels, split into training and test data."""
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    y = torch.tensor(y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y = x[order], y[order]
    return x[:1500], y[:1500], x[1500:], y[1500:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(64, 48), nn.Linear(48, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 48)) for _ in range(8)
        )

    def forward(self, x):
        h = self.inp(x.flatten(1))
        for i, block in enumerate(self.blocks):
            if self.training and random.random() < 0.5 * (i + 1) / 8:
                continue
            h = h + block(h)
        return self.out(h)


torch.set_num_threads(1)
torch.manual_seed(70)
random.seed(70)
x, y, xt, yt = digits()
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _step in range(550):
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
model.eval()
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
