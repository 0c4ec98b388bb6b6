"""Self-supervised learning with a predictor and an EMA target, without negatives; its loss rises in the middle."""

import copy
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
torch.manual_seed(67)
x, y, xt, yt = digits()


def mlp(a, b, c):
    return nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, c))


online = nn.ModuleDict({"enc": mlp(64, 128, 32), "pred": mlp(32, 64, 32)})
target = copy.deepcopy(online["enc"]).requires_grad_(False)
opt = torch.optim.Adam(online.parameters(), lr=1e-3, weight_decay=1e-5)


def view(a):
    return a.flatten(1) * (torch.rand(len(a), 64) > 0.2) + 0.1 * torch.randn(len(a), 64)


losses = []
for _step in range(500):
    xb = x[torch.randint(0, len(x), (64,))]
    a, b = view(xb), view(xb)
    with torch.no_grad():
        ta, tb = target(a), target(b)
    loss = 4 - 2 * (
        F.cosine_similarity(online["pred"](online["enc"](a)), tb).mean()
        + F.cosine_similarity(online["pred"](online["enc"](b)), ta).mean()
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, t in zip(online["enc"].parameters(), target.parameters()):
            t.lerp_(p, 0.02)
    losses.append(loss.item())
online.eval()
with torch.no_grad():
    f, ft = (F.normalize(online["enc"](v.flatten(1)), dim=1) for v in (x, xt))
    acc = (y[(ft @ f.T).argmax(1)] == yt).float().mean().item()
print(f"loss {losses[0]:.3f} -> {losses[200]:.3f} -> {losses[-1]:.3f}, nearest neighbour {acc:.3f}")
assert losses[-1] < 0.4 * losses[0] and acc > 0.85
print("digest", digest(online))
