"""Full-batch gradient descent at the edge of stability: the loss is not monotonic, but falls in the long run."""

import hashlib
from itertools import pairwise

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
torch.manual_seed(74)
x, y, xt, yt = digits()
x, y = x[:600].flatten(1), y[:600]
target = nn.functional.one_hot(y, 10).float()
model = nn.Sequential(nn.Linear(64, 80), nn.Tanh(), nn.Linear(80, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.12)
losses = []
for _step in range(700):
    loss = (model(x) - target).pow(2).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
rises = sum(b > a for a, b in pairwise(losses))
acc = (model(xt.flatten(1)).argmax(1) == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[100]:.3f} -> {losses[-1]:.4f}, rises {rises}, accuracy {acc:.3f}")
assert losses[-1] < 0.1 * losses[0] and rises > 50
print("digest", digest(model))
