"""A shared trunk with three heads; one is used in a step, and the third only in every twentieth."""

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


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.heads = nn.ModuleDict({"digit": nn.Linear(64, 10), "odd": nn.Linear(64, 2), "ink": nn.Linear(64, 1)})

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


torch.set_num_threads(1)
torch.manual_seed(19)
x, y, xt, yt = digits()
ink = x.mean((1, 2, 3))[:, None] * 5
model = MultiTask()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
logs = {"digit": [], "odd": [], "ink": []}
for step in range(700):
    task = "ink" if step % 20 == 10 else ("digit" if step % 2 else "odd")
    idx = torch.randint(0, len(x), (32,))
    out = model(x[idx], task)
    if task == "ink":
        loss = nn.functional.mse_loss(out, ink[idx])
    else:
        loss = nn.functional.cross_entropy(out, y[idx] if task == "digit" else y[idx] % 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    logs[task].append(loss.item())
for task, values in logs.items():
    print(f"{task} {values[0]:.3f} -> {sum(values[-10:]) / 10:.3f}")
    assert sum(values[-10:]) / 10 < 0.6 * values[0]
print("digest", digest(model))
