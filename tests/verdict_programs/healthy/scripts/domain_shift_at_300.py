"""Continual learning in which the digits are inverted and permuted at step 300; the loss leaps."""

import hashlib

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


torch.set_num_threads(1)
torch.manual_seed(48)
x, y, xt, yt = digits()
x, xt = x.flatten(1), xt.flatten(1)
perm = torch.randperm(64)
model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for step in range(600):
    idx = torch.randint(0, len(x), (32,))
    xb = x[idx] if step < 300 else -2 * x[idx][:, perm]
    loss = nn.functional.cross_entropy(model(xb), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(-2 * xt[:, perm]).argmax(1) == yt).float().mean().item()
print("loss " + " -> ".join(f"{losses[i]:.3f}" for i in (0, 299, 300, -1)) + f", accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
