"""Regression with Student-t noise and log-normal inputs, trained with batches of two samples."""

import hashlib

import torch
from torch import nn
from torch.distributions import StudentT


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(22)
x = torch.exp(0.5 * torch.randn(3000, 6))
clean = x[:, 0] * 2 - x[:, 1] + torch.sin(2 * x[:, 2])
y = clean + 0.2 * StudentT(2.0).sample((3000,))
model = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def error():
    with torch.no_grad():
        return (model(x)[:, 0] - clean).abs().mean().item()


before = error()
for step in range(1000):
    idx = torch.randint(0, len(x), (2,))
    loss = nn.functional.huber_loss(model(x[idx])[:, 0], y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"error {before:.3f} -> {error():.3f}")
assert error() < 0.35 * before
print("digest", digest(model))
