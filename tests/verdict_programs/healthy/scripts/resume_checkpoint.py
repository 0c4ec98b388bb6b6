"""A training that saves a checkpoint, builds everything anew in the middle and resumes from the file."""

import hashlib
import tempfile
from pathlib import Path

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


def build():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    return model, opt, torch.optim.lr_scheduler.StepLR(opt, 250, 0.3)


def train(model, opt, sched, begin, end):
    for step in range(begin, end):
        idx = torch.randint(0, len(x), (32,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    print(f"step {step} loss {loss.item():.4f}")


torch.set_num_threads(1)
torch.manual_seed(49)
x, y, xt, yt = digits()
parts = build()
train(*parts, 0, 500)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "checkpoint.pt"
    torch.save([part.state_dict() for part in parts], file)
    parts = build()
    for part, state in zip(parts, torch.load(file)):
        part.load_state_dict(state)
train(*parts, 500, 1000)
acc = (parts[0](xt).argmax(1) == yt).float().mean().item()
print(f"accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(parts[0]))
