"""Knowledge distillation from a frozen teacher that is trained first in the same program."""

import hashlib

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


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
torch.manual_seed(63)
x, y, xt, yt = digits()
teacher = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
student = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for _step in range(500):
    idx = torch.randint(0, len(x), (32,))
    loss = F.cross_entropy(teacher(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
teacher.eval().requires_grad_(False)
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
for _step in range(700):
    idx = torch.randint(0, len(x), (32,))
    out = student(x[idx])
    soft = F.kl_div((out / 3).log_softmax(1), (teacher(x[idx]) / 3).softmax(1), reduction="batchmean") * 9
    loss = 0.7 * soft + 0.3 * F.cross_entropy(out, y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
acc = (student(xt).argmax(1) == yt).float().mean().item()
print(f"loss {loss.item():.4f}, student accuracy {acc:.3f}")
assert acc > 0.9
print("digest", digest(teacher, student))
