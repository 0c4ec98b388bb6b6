"""An over-parametrised network for digits with AdamW and weight decay 0.1 at a high learning rate."""

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
torch.manual_seed(25)
x, y, xt, yt = digits()
model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, 256),
    nn.GELU(),
    nn.LayerNorm(256),
    nn.Linear(256, 256),
    nn.GELU(),
    nn.LayerNorm(256),
    nn.Linear(256, 10),
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
for step in range(600):
    idx = torch.randint(0, len(x), (64,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    if step == 0:
        first = loss.item()
    opt.zero_grad()
    loss.backward()
    opt.step()
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {first:.3f} -> {loss.item():.5f}, accuracy {acc:.3f}")
assert acc > 0.95
print("digest", digest(model))
