"""Digits with dropout, random shifts, additive noise and mixup; the loss stays high but the accuracy is good."""

import hashlib

import numpy as np
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
torch.manual_seed(4)
np.random.seed(4)
x, y, xt, yt = digits()
net = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Dropout2d(0.2),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.5),
    nn.Linear(384, 64),
    nn.ReLU(),
    nn.Dropout(0.5),
    nn.Linear(64, 10),
)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
losses = []
for step in range(900):
    idx = torch.randint(0, len(x), (48,))
    xb = torch.roll(x[idx], shifts=tuple(np.random.randint(-1, 2, 2).tolist()), dims=(2, 3))
    xb = xb + 0.2 * torch.randn_like(xb)
    lam = float(np.random.beta(0.4, 0.4))
    perm = torch.randperm(len(xb))
    out = net(lam * xb + (1 - lam) * xb[perm])
    ce = nn.functional.cross_entropy
    loss = lam * ce(out, y[idx]) + (1 - lam) * ce(out, y[idx][perm])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
net.eval()
acc = (net(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {np.mean(losses[-50:]):.3f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(net))
