"""Digits of which 35 % of the labels are random, so that the loss can fall only a little."""

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
torch.manual_seed(20)
x, y, xt, yt = digits()
noisy = torch.where(torch.rand(len(y)) < 0.35, torch.randint(0, 10, (len(y),)), y)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))
opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.05)
losses = []
for _step in range(550):
    idx = torch.randint(0, len(x), (16,))
    loss = nn.functional.cross_entropy(model(x[idx]), noisy[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
model.eval()
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {sum(losses[-50:]) / 50:.3f}, clean accuracy {acc:.3f}")
assert acc > 0.88
print("digest", digest(model))
