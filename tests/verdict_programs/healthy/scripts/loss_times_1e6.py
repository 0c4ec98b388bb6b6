"""A user multiplies the loss by 1e6 (Adam does not care)."""

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
torch.manual_seed(61)
x, y, xt, yt = digits()
model = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(432, 10))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = []
for _step in range(600):
    idx = torch.randint(0, len(x), (32,))
    loss = 1e6 * nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.0f} -> {losses[-1]:.0f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
