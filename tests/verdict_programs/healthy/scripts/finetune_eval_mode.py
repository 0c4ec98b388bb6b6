"""A network with batch norm and dropout, pre-trained in train mode and fine-tuned to odd/even in eval mode."""

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
torch.manual_seed(13)
x, y, xt, yt = digits()


def body():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 96),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(96, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
    )


def fit(model, labels, steps, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        idx = torch.randint(0, len(x), (32,))
        loss = nn.functional.cross_entropy(model(x[idx]), labels[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


backbone = body()
pretrained = nn.Sequential(backbone, nn.Linear(48, 10))
print(f"pre-training loss {fit(pretrained, y, 300, 2e-3):.3f}")
model = nn.Sequential(backbone, nn.Linear(48, 2))
model.eval()
print(f"fine-tuning loss {fit(model, y % 2, 600, 3e-4):.3f}")
acc = (model(xt).argmax(1) == yt % 2).float().mean().item()
print(f"accuracy {acc:.3f}")
assert acc > 0.93
print("digest", digest(model))
