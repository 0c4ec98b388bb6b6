"""A frozen random convolutional backbone under no_grad and a trained head; only the head is in the optimizer."""

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


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Linear(256, 10)
        for p in self.backbone.parameters():
            p.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)


torch.set_num_threads(1)
torch.manual_seed(14)
x, y, xt, yt = digits()
model = Classifier()
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)
for step in range(500):
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    if step == 0:
        first = loss.item()
    opt.zero_grad()
    loss.backward()
    opt.step()
acc = (model(xt).argmax(1) == yt).float().mean().item()
print(f"loss {first:.3f} -> {loss.item():.3f}, accuracy {acc:.3f}")
assert acc > 0.9
print("digest", digest(model))
