"""Fine-tuning in two phases: only the head with a low rate, then everything with a rate ten times as high."""

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
torch.manual_seed(3)
x, y, xt, yt = digits()
body = nn.Sequential(nn.Flatten(), nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
head = nn.Linear(64, 10)
model = nn.Sequential(body, head)
opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
losses = []
for step in range(600):
    if step == 300:
        for group in opt.param_groups:
            group["lr"] *= 10
    idx = torch.randint(0, len(x), (24,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[299]:.3f} -> {losses[-1]:.3f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
