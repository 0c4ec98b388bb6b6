"""A learning-rate finder that raises the rate until the loss explodes, then reloads the weights and trains."""

import copy
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
torch.manual_seed(51)
x, y, xt, yt = digits()
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def step(opt):
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


saved = copy.deepcopy(model.state_dict())
opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
best, rates = float("inf"), []
for i in range(100):
    opt.param_groups[0]["lr"] = lr = 1e-3 * 10 ** (i / 25)
    loss = step(opt)
    if loss > 4 * best:
        break
    if loss < best:
        best, best_lr = loss, lr
model.load_state_dict(saved)
opt = torch.optim.SGD(model.parameters(), lr=best_lr / 5, momentum=0.9)
losses = [step(opt) for _ in range(700)]
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"finder {i} steps, lr {best_lr / 5:.4f}, loss {losses[0]:.3f} -> {losses[-1]:.4f}, accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
