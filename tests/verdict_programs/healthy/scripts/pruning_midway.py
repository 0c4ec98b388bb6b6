"""Magnitude pruning of 50 % of the weights of two layers at step 400, followed by recovery."""

import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import prune


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
torch.manual_seed(71)
x, y, xt, yt = digits()
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
for i in (1, 3):
    prune.identity(model[i], "weight")
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
for step in range(600):
    if step == 400:
        for i in (1, 3):
            prune.l1_unstructured(model[i], "weight", amount=0.5)
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
acc = (model(xt).argmax(1) == yt).float().mean().item()
print("loss " + " -> ".join(f"{losses[i]:.4f}" for i in (0, 399, 400, -1)) + f", accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
