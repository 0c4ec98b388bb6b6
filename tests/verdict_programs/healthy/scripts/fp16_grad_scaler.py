"""Mixed precision with float16 autocast and a GradScaler whose first steps are skipped."""

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
torch.manual_seed(36)
x, y, xt, yt = digits()
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=200)
skipped = 0
for step in range(550):
    idx = torch.randint(0, len(x), (32,))
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    if step == 0:
        first = loss.item()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    skipped += scaler.get_scale() < before
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {first:.3f} -> {loss.item():.4f}, accuracy {acc:.3f}, skipped {skipped}")
assert acc > 0.93 and skipped >= 2
print("digest", digest(model))
